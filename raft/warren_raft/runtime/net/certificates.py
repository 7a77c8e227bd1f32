"""Certificates on disk become TLS contexts, and become new ones when the files change."""

from __future__ import annotations

import logging
import os
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from warren_raft.tls_contexts import client_side, server_side

log = logging.getLogger("warren.raft")
Made = TypeVar("Made")

LOOK_S = 1.0
"""Interval at which the files are looked at. They are read once two looks have found the same
change: certificate and key are two files, written one after the other."""


class CertificatesUnusable(Exception):
    """Files of certificates or keys that cannot be used; the text names them."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the certificates are, and what is asked of the other side.

    certfile    PEM: this side's certificate, then those between it and the authority's
    keyfile     PEM: its private key; None: it is in `certfile`
    cacertfile  PEM: the accepted certificate authorities; None: none is
    password    of the key
    verify      CERT_NONE, CERT_OPTIONAL (checked if there is one) or CERT_REQUIRED
    """

    certfile: Path
    keyfile: Path | None = None
    cacertfile: Path | None = None
    password: str | None = field(default=None, repr=False)
    verify: ssl.VerifyMode = ssl.CERT_NONE

    def paths(self) -> tuple[Path, ...]:
        """Return the files that exist in this configuration."""
        return tuple(
            path for path in (self.certfile, self.keyfile, self.cacertfile) if path is not None
        )


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of the side that is called; raises CertificatesUnusable."""
    return _load(server_side(), files)


def peer_context(files: TlsFiles) -> ssl.SSLContext:
    """Return the context of a node that calls another one; raises CertificatesUnusable.

    Names are not checked: a peer's name is proven by the cluster's secret (`handshake`).
    """
    return _load(client_side(checks=False), files)


def checking_context(cacertfile: str | Path | None) -> ssl.SSLContext:
    """Return the context for calling a server, of which certificate and name are checked.

    cacertfile  PEM: the accepted certificate authorities; None or "": the system's
    raises      OSError, ssl.SSLError

    It accepts the same certificates on every Python, as the contexts above do. What
    `ssl.create_default_context` accepts depends on Python: since 3.13 it refuses an authority
    without key usage, and a certificate without the identifier of its authority's key, such as
    `openssl req -x509` and `openssl x509 -req` make (VERIFY_X509_STRICT); and an intermediate
    authority counts as a root (VERIFY_X509_PARTIAL_CHAIN). After an update of Python a node would
    no longer reach what it reached before.
    """
    context = client_side()
    if cacertfile:
        context.load_verify_locations(cacertfile)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    return context


def _load(context: ssl.SSLContext, files: TlsFiles) -> ssl.SSLContext:
    for path in files.paths():
        try:
            path.read_bytes()
        except OSError as error:
            raise CertificatesUnusable(f"cannot read {path}: {error.strerror}") from error
    try:
        # Without a function OpenSSL would ask for the password at the terminal.
        context.load_cert_chain(files.certfile, files.keyfile, lambda: files.password or "")
    except (OSError, ValueError) as error:
        raise CertificatesUnusable(_unusable(files, error)) from error
    if files.cacertfile is not None:
        try:
            context.load_verify_locations(files.cacertfile)
        except OSError as error:
            raise CertificatesUnusable(
                f"cacertfile={str(files.cacertfile)!r} holds no certificate in PEM format"
            ) from error
    context.verify_mode = files.verify
    return context


def _unusable(files: TlsFiles, error: Exception) -> str:
    where = f"certfile={str(files.certfile)!r}"
    if files.keyfile is not None:
        where += f", keyfile={str(files.keyfile)!r}"
    reason = getattr(error, "reason", None) or ""
    if reason == "KEY_VALUES_MISMATCH":
        return f"{where}: the key is not the certificate's; give the two that belong together"
    if b"ENCRYPTED" in (files.keyfile or files.certfile).read_bytes():
        return f"{where}: the key cannot be decrypted; give its password (password)"
    return (
        f"{where}: not a certificate and its private key in PEM format "
        f"({reason.replace('_', ' ').lower() or error})"
    )


class WatchedFiles(Generic[Made]):
    """What is made of files, a context; when they change, `current` becomes a new one.

    current  for the next connection; those that exist keep theirs
    what     the subject of its log lines
    The files are looked at on a thread, because a disk may hang.
    Invariant: `current` was made from files that belong together
    """

    def __init__(self, files: TlsFiles, make: Callable[[TlsFiles], Made], what: str) -> None:
        self._files = files
        self._make = make
        self._what = what
        self._used = _state(files)
        self._found = self._used
        self.current = make(files)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Look at the files from now on."""
        self._thread = threading.Thread(target=self._watch, name="certificates", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look at them no more."""
        self._over.set()

    def look(self) -> None:
        """Read the files again if they have changed, and have stayed the same since last time."""
        found, before = _state(self._files), self._found
        self._found = found
        if found == self._used or found != before:
            return
        self._used = found
        try:
            made = self._make(self._files)
        except CertificatesUnusable as error:
            log.error(
                "%s: the certificates on disk have changed and cannot be used: %s; new connections "
                "still get the earlier ones",
                self._what,
                error,
            )
            return
        self.current = made
        log.info("%s: new certificates were read from %s", self._what, self._files.certfile)

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            self.look()


def _state(files: TlsFiles) -> tuple[tuple[int, ...], ...]:
    """Return what tells a version of the files from any other."""
    found: list[tuple[int, ...]] = []
    for path in files.paths():
        try:
            seen = os.stat(path)
            found.append((seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns))
        except OSError as error:
            found.append((error.errno or 0,))
    return tuple(found)
