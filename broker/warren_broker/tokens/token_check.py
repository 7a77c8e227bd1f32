"""The check of a JSON Web Token: signature, audience, issuer, times; and what it permits.

PyJWT checks signatures. The rest is here, because its times are those of the machine's clock, and
those of a node are its loop's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from warren_broker.access.token_rights import TokenRights, aliased, parse_scopes
from warren_broker.settings.token_settings import TokenSettings
from warren_broker.tokens.token_keys import SigningKeys, malformed

TOKEN_BYTES_MAX: Final = 64 << 10
NOT_BEFORE_LEEWAY_S: Final = 60
"""So far may the issuer's clock be ahead of this machine's."""
USER_CLAIMS: Final = ("sub", "client_id")
"""Claims with the user's name, where the configuration names none."""
USER_UNKNOWN: Final = "unknown"
"""RabbitMQ's name of a user without one of these claims."""
USER_BYTES_MAX: Final = 255
_SHAPE: Final = re.compile(r"eyJ[A-Za-z0-9_-]*\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
"""Header, claims and signature in base64; a header begins with the bracket of a JSON object."""
_ONLY_SIGNATURE: Final = {
    "verify_signature": True,
    **{f"verify_{name}": False for name in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")},
}


class TokenRefused(Exception):
    """A token that does not log in; the text says why, without the token: it is for the log."""


class _KeyUnknown(TokenRefused):
    """No key has the id that the token says: the issuer may have a new one."""


class TokenChecker:
    """Checks tokens with the keys of one configuration."""

    def __init__(self, settings: TokenSettings, keys: SigningKeys) -> None:
        self._settings = settings
        self._keys = keys
        self._aliases = {
            alias: tuple(scopes.split()) for alias, scopes in settings.scope_aliases.items()
        }

    def check(self, token: str, now_ms: int) -> TokenRights:
        """Return what a token permits; raises TokenRefused."""
        claims = self._claims(token)
        now_s, ends_s = now_ms / 1000, _time(claims, "exp")
        if ends_s is None:
            raise TokenRefused("it has no time at which it expires (exp)")
        if ends_s <= now_s:
            raise TokenRefused(f"it has expired, {now_s - ends_s:.0f} s ago")
        begins_s = _time(claims, "nbf")
        if begins_s is not None and begins_s > now_s + NOT_BEFORE_LEEWAY_S:
            raise TokenRefused(f"it is not valid before {begins_s - now_s:.0f} s from now")
        settings = self._settings
        if settings.verify_aud and settings.resource_server_id not in _words(claims.get("aud")):
            raise TokenRefused(f"its audience (aud) is not {settings.resource_server_id!r}")
        if settings.issuer is not None and claims.get("iss") != settings.issuer:
            raise TokenRefused(f"its issuer (iss) is not {settings.issuer!r}")
        told = _words(claims.get("scope"))
        for path in (settings.additional_scopes_key or "").split():
            told += self._more(claims, path.split("."))
        try:
            scopes, tags = parse_scopes(aliased(told, self._aliases), settings.prefix)
        except ValueError as wrong:
            raise TokenRefused(str(wrong)) from None
        return TokenRights(self._user(claims), scopes, tags, int(ends_s * 1000))

    def knows_key(self, token: str) -> bool:
        """Return whether there is a key of the id that a token says; also for no token at all."""
        try:
            self._key(token)
        except _KeyUnknown:
            return False
        except TokenRefused:
            pass
        return True

    def _key(self, token: str) -> tuple[Any, str]:
        """Return a token's key, and the algorithm that it says; nothing is verified yet."""
        import jwt  # only where tokens log in: the library takes 0.1 s to load

        try:
            header = jwt.get_unverified_header(token)
        except malformed() as wrong:
            raise TokenRefused(f"its form is wrong ({type(wrong).__name__})") from None
        kid, algorithm = header.get("kid", ""), header.get("alg")
        key = self._keys.get(kid if isinstance(kid, str) else "")
        if key is None:
            raise _KeyUnknown("no key has its id (kid): see auth_oauth2, signing_keys, jwks_uri")
        if algorithm not in self._settings.algorithms:
            raise TokenRefused("the algorithm of its signature (alg) is not among the accepted")
        # PyJWT would verify by the algorithm of such a key, whatever the token says.
        if isinstance(key, jwt.PyJWK) and algorithm != key.algorithm_name:
            raise TokenRefused("the algorithm of its signature (alg) is not that of its key")
        return key, algorithm

    def _claims(self, token: str) -> dict[str, Any]:
        import jwt

        key, algorithm = self._key(token)
        try:
            found: dict[str, Any] = jwt.decode(token, key, [algorithm], options=_ONLY_SIGNATURE)
        except malformed() as wrong:
            raise TokenRefused(f"its signature or form is wrong ({type(wrong).__name__})") from None
        return found

    def _more(self, found: object, path: list[str]) -> list[str]:
        """Return additional scopes: what is at a path of names, through lists of objects, too."""
        for at, name in enumerate(path):
            if isinstance(found, list):
                return [
                    word
                    for each in found
                    if isinstance(each, dict)
                    for word in self._more(each, path[at:])
                ]
            if not isinstance(found, dict):
                return []
            found = found.get(name)
        if not isinstance(found, dict):
            return _words(found)
        # Of this broker in an object: without prefix. As in RabbitMQ it is not scope_prefix.
        own = f"{self._settings.resource_server_id}."
        return [own + word for word in _words(found.get(self._settings.resource_server_id))]

    def _user(self, claims: Mapping[str, object]) -> str:
        for name in self._settings.preferred_username_claims or USER_CLAIMS:
            found = claims.get(name)
            if isinstance(found, str) and found:
                if not found.isprintable():  # nor are surrogates, which no text frame carries
                    raise TokenRefused(f"its user ({name}) has signs that cannot be printed")
                if len(found.encode()) > USER_BYTES_MAX:
                    raise TokenRefused(f"its user ({name}) has more than {USER_BYTES_MAX} bytes")
                return found
        return USER_UNKNOWN


def is_token(password: str) -> bool:
    """Return whether a password looks like a token; one that does may still be a password."""
    return len(password) <= TOKEN_BYTES_MAX and _SHAPE.fullmatch(password) is not None


def _time(claims: Mapping[str, object], name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < 2**53:
        raise TokenRefused(f"its claim {name} is no time")
    return float(found)


def _words(found: object) -> list[str]:
    """Return the texts of a list, or those between the spaces of a text (RFC 6749, 3.3).

    A text of a list may have spaces, as a queue's name; one that cannot be printed is nothing.
    """
    texts = found.split(" ") if isinstance(found, str) else found
    if not isinstance(texts, list):
        return []
    return [each for each in texts if isinstance(each, str) and each and each.isprintable()]
