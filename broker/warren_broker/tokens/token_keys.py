"""The public keys that tokens are checked with: of files, and what the issuer publishes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from warren_broker.settings.token_settings import TokenSettings

KEYS_BYTES_MAX: Final = 256 << 10
"""Of a file with keys, and of a key set that an issuer sends."""
KEYS_MAX: Final = 100
"""Keys of a set."""


class KeysUnusable(Exception):
    """Keys that tokens cannot be checked with; the text names where they are from."""


class SigningKeys:
    """Keys by their id; `""` is that of tokens without one.

    of_files  where both have an id, this one's key counts: it is the operator's
    """

    def __init__(self, of_files: Mapping[str, Any], default: str | None) -> None:
        self._of_files = of_files
        self._fetched: Mapping[str, Any] = {}
        self._default = default

    def get(self, kid: str) -> Any:
        """Return the key with an id; None: there is none."""
        if not kid and self._default is not None:
            kid = self._default
        found = self._of_files.get(kid)
        return self._fetched.get(kid) if found is None else found

    def fetched(self, keys: Mapping[str, Any]) -> bool:
        """Replace what the issuer published before; return whether there are other ids."""
        changed = keys.keys() != self._fetched.keys()
        self._fetched = keys
        return changed


def keys_of_files(settings: TokenSettings) -> SigningKeys:
    """Return the keys of the configured files; raises KeysUnusable."""
    load = _pem_loader()
    keys: dict[str, Any] = {}
    if settings.jwks_file is not None:
        name = f"auth_oauth2.jwks_file={str(settings.jwks_file)!r}"
        keys |= key_set(_read(settings.jwks_file, name), name)
    for kid, path in settings.signing_keys.items():
        name = f"auth_oauth2.signing_keys.{kid}={str(path)!r}"
        try:
            keys[kid] = load(_read(path, name))
        except ValueError:
            raise KeysUnusable(f"{name} holds no public key in PEM format") from None
    if settings.default_key is not None and settings.jwks_uri is None:
        if settings.default_key not in keys:
            raise KeysUnusable(
                f"auth_oauth2.default_key={settings.default_key!r} is no key; there are "
                f"{', '.join(map(repr, sorted(keys))) or 'none'}"
            )
    return SigningKeys(keys, settings.default_key)


def key_set(data: bytes, name: str) -> dict[str, Any]:
    """Return the usable public keys of a JSON Web Key Set, by their ids.

    Keys for encryption, of shared secrets, and of kinds that are not known are passed over.

    raises  KeysUnusable: it is no set, or none is usable; the text names it, and has none of it
    """
    import jwt

    try:
        told = json.loads(data)["keys"]
        if not isinstance(told, list):
            raise TypeError
    except (ValueError, TypeError, KeyError, RecursionError):
        raise KeysUnusable(f"{name} is no JSON Web Key Set") from None
    if len(told) > KEYS_MAX:
        raise KeysUnusable(f"{name} has {len(told)} keys; {KEYS_MAX} is the limit")
    keys: dict[str, Any] = {}
    for one in told:
        if not isinstance(one, dict) or one.get("use", "sig") != "sig" or "d" in one:
            continue
        kid = one.get("kid", "")
        try:
            made = jwt.PyJWK(one)
            if made.key_type == "oct" or not isinstance(kid, str):
                continue
        except malformed():
            continue
        # A key that says no algorithm is for all of its type: PyJWK would take RS256 for RSA.
        keys[kid] = made if "alg" in one else made.key
    if not keys:
        raise KeysUnusable(f"{name} has no public key of a known kind for signatures")
    return keys


def malformed() -> tuple[type[Exception], ...]:
    """Return what PyJWT and cryptography raise for tokens and keys that others have made.

    Beside their own errors these are any for members that are missing, or of another type.
    """
    import jwt
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    named = (jwt.PyJWTError, UnsupportedAlgorithm, InvalidSignature)
    return (
        *named,
        *(ValueError, TypeError, ArithmeticError, AttributeError, LookupError, RuntimeError),
    )


def _pem_loader() -> Any:
    try:
        import jwt  # noqa: F401
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError:
        raise KeysUnusable(
            "auth_oauth2 needs PyJWT and cryptography: pip install 'warrenmq[oauth2]'"
        ) from None
    return load_pem_public_key


def _read(path: Path, name: str) -> bytes:
    try:
        with path.open("rb") as stream:
            data = stream.read(KEYS_BYTES_MAX + 1)
    except OSError as error:
        raise KeysUnusable(f"{name} cannot be read: {error.strerror}") from None
    if len(data) > KEYS_BYTES_MAX:
        raise KeysUnusable(f"{name} has more than {KEYS_BYTES_MAX} bytes")
    return data
