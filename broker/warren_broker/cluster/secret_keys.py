"""The cluster's secret, and keys that are derived from it."""

from __future__ import annotations

import hmac
from typing import Final

from warren_raft.runtime.net.handshake import peer_key

SECRET_BYTES_MIN: Final = 8
"""What the handshake between nodes asks for."""
_OF_LINKS: Final = b"warren: passwords of links, 1"


def secret_bytes(secret: str) -> bytes:
    """Return the configured secret as the Raft host takes it."""
    return secret.encode().ljust(SECRET_BYTES_MIN, b"\0")


def link_key(secret: str, cluster: str) -> bytes:
    """Return the 64 bytes that seal the passwords of links; see `shovel.sealed_uris`.

    As slow to guess as the key between the nodes, from which it is derived, and which is derived
    once per process. Neither tells anything of the other.
    """
    return hmac.digest(peer_key(secret_bytes(secret), cluster), _OF_LINKS, "sha512")
