"""Certificate authorities and certificates for tests, made by the `openssl` command."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, in PEM files."""

    cert: Path
    key: Path


class Authority:
    """An authority of its own, in a directory of its own.

    plain  certificates as openssl makes them where nothing more is asked of it: the authority has
           no key usage, and what it issues no identifier of its key (RFC 5280 wants both). Contexts
           of `ssl.create_default_context` refuse them since Python 3.13
    """

    def __init__(self, directory: Path, name: str = "authority", *, plain: bool = False) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._plain = plain
        self.cert = directory / "ca.pem"
        self._key = directory / "ca.key"
        run(
            "req",
            "-x509",
            *KEY,
            "-subj",
            f"/CN={name}",
            "-days",
            "10",
            *(() if plain else ("-addext", "keyUsage=critical,keyCertSign,cRLSign")),
            "-keyout",
            self._key,
            "-out",
            self.cert,
        )

    def issue(
        self,
        name: str,
        *,
        san: str = "DNS:localhost,IP:127.0.0.1",
        days: int = 5,
        file: str | None = None,
        subject: str | None = None,
    ) -> Certificate:
        """Make a certificate for a common name; with days=-1 it has expired.

        san   its subject alternative names, as openssl writes them
        file  name of the files, if not that of the certificate: they replace those of that name
        subject  as openssl takes it, if it is not the common name alone
        """
        place = self._directory / (file or name.replace("/", "_"))
        made = Certificate(place.with_suffix(".pem"), place.with_suffix(".key"))
        request, extensions = place.with_suffix(".csr"), place.with_suffix(".ext")
        issuer = "" if self._plain else "authorityKeyIdentifier=keyid:always\n"
        extensions.write_text(f"subjectAltName={san}\n{issuer}")
        run(
            "req",
            *KEY,
            "-utf8",
            "-subj",
            subject or f"/CN={name}",
            "-keyout",
            made.key,
            "-out",
            request,
        )
        run(
            "x509",
            "-req",
            "-in",
            request,
            "-CA",
            self.cert,
            "-CAkey",
            self._key,
            "-CAcreateserial",
            "-days",
            str(days),
            "-extfile",
            extensions,
            "-out",
            made.cert,
        )
        return made


def run(*arguments: str | Path) -> None:
    """Run openssl; fail with what it says."""
    done = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
