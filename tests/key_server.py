"""An https server that publishes keys for tokens, as an issuer does."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.certificates import Certificate
from tests.signing_key import SigningKey

Answered = tuple[int, bytes, dict[str, str]]


def published(*keys: SigningKey) -> bytes:
    """Return a key set: the first key's id is k1, the second's k2."""
    return json.dumps({"keys": [_public(key, f"k{i}") for i, key in enumerate(keys, 1)]}).encode()


def _public(key: SigningKey, kid: str) -> dict[str, str]:
    command = ["openssl", "rsa", "-pubin", "-in", str(key.public), "-noout", "-modulus"]
    told = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    modulus = bytes.fromhex(told.strip().removeprefix("Modulus="))
    n = base64.urlsafe_b64encode(modulus).rstrip(b"=").decode()
    return {"kty": "RSA", "use": "sig", "alg": "RS256", "kid": kid, "n": n, "e": "AQAB"}


class KeyServer:
    """A context manager; `answer` returns status, content and headers of each answer.

    asked  number of requests
    """

    def __init__(self, certificate: Certificate, answer: Callable[[], Answered]) -> None:
        self.answer = answer
        self.asked = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server._serve(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate.cert, certificate.key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        self.url = f"https://127.0.0.1:{self.port}/keys"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> KeyServer:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        self.asked += 1
        status, data, headers = self.answer()
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)
