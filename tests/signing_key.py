"""Signed tokens for tests, made by the `openssl` command."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.certificates import run

CLIENT, KEY_ID = "spark", "k1"
LONG_S = 3_600.0
"""A token's life in tests of other things than its end."""


class SigningKey:
    """An RSA key of its own; a broker is given `public`."""

    def __init__(self, directory: Path) -> None:
        self.private, self.public = directory / "signing.key", directory / "signing.pem"
        run("genrsa", "-out", self.private, "2048")
        run("rsa", "-in", self.private, "-pubout", "-out", self.public)
        self.public.chmod(0o644)

    def token(self, life_s: float = LONG_S, key_id: str = KEY_ID, **claims: Any) -> str:
        """Return a signed token, each another one; a claim of None is left out."""
        now = time.time()
        said = {
            "exp": round(now + life_s),
            "iat": now,
            "aud": ["rabbitmq"],
            "sub": CLIENT,
            "client_id": CLIENT,
            "scope": [f"rabbitmq.{what}:*/*" for what in ("read", "write", "configure")],
            **claims,
        }
        said = {name: value for name, value in said.items() if value is not None}
        header = {"alg": "RS256", "typ": "JWT", "kid": key_id}
        signed = b".".join(map(_coded, (header, said)))
        command = ["openssl", "dgst", "-sha256", "-sign", str(self.private)]
        made = subprocess.run(command, input=signed, capture_output=True, check=True).stdout
        return (signed + b"." + base64.urlsafe_b64encode(made).rstrip(b"=")).decode()


def _coded(part: dict[str, Any]) -> bytes:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=")
