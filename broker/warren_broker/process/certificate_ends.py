"""When certificates end: for the health check, the metric and a daily line of the log."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from warren_broker.config import NodeConfig

log = logging.getLogger(__name__)

TOLD_BEFORE = timedelta(days=30)
"""How long before its end a certificate is reported every day."""
DAILY_S = 86_400.0


class CertificateUnreadable(Exception):
    """A file without a certificate that can be read; the text says which and why."""


class CertificateEnd(NamedTuple):
    """A certificate of a file, and when its validity begins and ends, in UTC."""

    file: Path
    begins: datetime
    ends: datetime


def read_ends(file: Path) -> list[CertificateEnd]:
    """Return what a PEM file's certificates say, in its order; raises CertificateUnreadable.

    It reads the file, and loads a library that takes 0.1 s: not for the loop's thread.
    """
    from cryptography.x509 import load_pem_x509_certificates

    try:
        found = load_pem_x509_certificates(file.read_bytes())
    except OSError as error:
        raise CertificateUnreadable(f"cannot read {file}: {error.strerror}") from error
    except ValueError as error:
        raise CertificateUnreadable(
            f"{file} holds no certificate in PEM format: {error}"
        ) from error
    return [
        CertificateEnd(file, one.not_valid_before_utc, one.not_valid_after_utc) for one in found
    ]


def certificate_files(settings: NodeConfig) -> list[Path]:
    """Return the files with certificates that a configuration names, sorted, each once."""
    named = {settings.tls.certfile, settings.tls.cacertfile}
    if settings.management.enabled and settings.management.ssl is not None:
        named |= {settings.management.ssl.certfile, settings.management.ssl.cacertfile}
    return sorted(file for file in named if file is not None)


def first_ends(files: Iterable[Path]) -> list[CertificateEnd]:
    """Return of each file that can be read the certificate that ends first."""
    found: list[CertificateEnd] = []
    for file in files:
        try:
            found.append(min(read_ends(file), key=lambda one: one.ends))
        except CertificateUnreadable as error:
            log.warning("its certificates' end is not known: %s", error)
    return found


def report(files: Iterable[Path], now: datetime) -> list[CertificateEnd]:
    """Log which certificates end within TOLD_BEFORE, or have ended; return when each file's do."""
    found = first_ends(files)
    for one in found:
        left = one.ends - now
        if left > TOLD_BEFORE:
            continue
        when = f"{one.ends:%Y-%m-%d %H:%M} UTC"
        if left <= timedelta(0):
            log.error("the certificate in %s ended on %s: replace it", one.file, when)
        else:
            log.warning(
                "the certificate in %s ends on %s, in %d days: replace it before",
                one.file,
                when,
                left.days,
            )
    return found


def watch(settings: NodeConfig) -> dict[Path, int]:
    """Report now, and every day until the process ends, on a thread: a disk may hang.

    returns  what the thread keeps up to date: when each file's certificates end, in milliseconds
             since the epoch
    """
    files, ends = certificate_files(settings), dict[Path, int]()
    if not files:
        return ends

    def look() -> None:
        pause = threading.Event()
        while True:
            for one in report(files, datetime.now(UTC)):
                ends[one.file] = int(one.ends.timestamp() * 1000)
            pause.wait(DAILY_S)

    threading.Thread(target=look, name="certificate ends", daemon=True).start()
    return ends
