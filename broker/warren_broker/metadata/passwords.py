"""Password hashes in the form of RabbitMQ's rabbit_password_hashing_sha256.

base64(salt of 4 bytes | SHA-256(salt | password in UTF-8)): definitions exported there can be used
here.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

SALT_BYTES = 4


def hash_password(password: str, salt: bytes) -> str:
    """The hash to keep; the salt is drawn by the caller."""
    assert len(salt) == SALT_BYTES, len(salt)
    digest = hashlib.sha256(salt + password.encode("utf-8", "surrogatepass")).digest()
    return base64.b64encode(salt + digest).decode("ascii")


def matches(password: str, password_hash: str) -> bool:
    """Whether it is the password, in constant time; an empty or damaged hash matches nothing."""
    try:
        kept = base64.b64decode(password_hash, validate=True)
    except (binascii.Error, ValueError):
        return False
    if len(kept) != SALT_BYTES + hashlib.sha256().digest_size:
        return False
    again = hash_password(password, kept[:SALT_BYTES])
    return hmac.compare_digest(again, password_hash)
