"""Password hashes in RabbitMQ's form: definitions exported there can be used here.

base64(salt of 4 bytes | digest(salt | password in UTF-8)). New hashes are made as by RabbitMQ's
rabbit_password_hashing_sha256; those of its two other algorithms are recognised by their length.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import Final

from warren_wire.errors import InvalidArgument

SALT_BYTES = 4
ALGORITHMS: Final = {
    "rabbit_password_hashing_sha256": "sha256",
    "rabbit_password_hashing_sha512": "sha512",
    "rabbit_password_hashing_md5": "md5",
}
"""RabbitMQ's name of an algorithm to the digest's."""
_BY_LENGTH: Final = {
    SALT_BYTES + hashlib.new(digest).digest_size: name for name, digest in ALGORITHMS.items()
}
_DEFAULT: Final = "rabbit_password_hashing_sha256"


def hash_password(password: str, salt: bytes, algorithm: str = _DEFAULT) -> str:
    """Return the hash to store; the caller draws the salt."""
    assert len(salt) == SALT_BYTES, len(salt)
    digest = hashlib.new(
        ALGORITHMS[algorithm], salt + password.encode("utf-8", "surrogatepass")
    ).digest()
    return base64.b64encode(salt + digest).decode("ascii")


def algorithm_of(password_hash: str) -> str:
    """Return RabbitMQ's name of the algorithm; "" for no hash, or an unknown length."""
    return _BY_LENGTH.get(len(_decoded(password_hash)), "")


def checked(password_hash: str, algorithm: str) -> str:
    """Check and return a hash given by a client; "" is one that no password matches.

    algorithm  RabbitMQ's name; "": any that fits
    fails      InvalidArgument
    """
    found = algorithm_of(password_hash)
    if password_hash and (not found or algorithm not in ("", found)):
        raise InvalidArgument(
            f"password_hash is not base64 of a salt of {SALT_BYTES} bytes with a digest of "
            f"hashing_algorithm={algorithm!r}; known: {', '.join(ALGORITHMS)}"
        )
    return password_hash


def matches(password: str, password_hash: str) -> bool:
    """Return whether the password matches, in constant time.

    An empty or damaged hash matches nothing; as in RabbitMQ, neither does an empty password.
    """
    kept = _decoded(password_hash)
    algorithm = _BY_LENGTH.get(len(kept))
    if algorithm is None or not password:
        return False
    again = hash_password(password, kept[:SALT_BYTES], algorithm)
    return hmac.compare_digest(base64.b64decode(again), kept)


def _decoded(password_hash: str) -> bytes:
    try:
        return base64.b64decode(password_hash, validate=True)
    except (binascii.Error, ValueError):
        return b""
