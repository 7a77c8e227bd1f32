"""The URIs of links as the definitions keep them: sealed, where they may have a password.

The node that takes a parameter seals it before it is submitted, and nodes open it to run, show or
export it. To the machine of the definitions it is a text like any other. AES-SIV (RFC 5297) needs
no nonce: an equal URI of the same parameter is sealed to equal text, on every node.
1. Three nodes start with the same file of definitions, and each submits the import.  2. With a
nonce of its own, each would change the parameter for the next one, and its link would begin again.
The price: it can be seen that a parameter was set to the same URI again.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

import msgspec

from warren_machines.metadata.records import Parameter
from warren_wire.errors import InternalError, Refusal
from warren_wire.links.uris import SEALED, has_password, with_uris

SEALED_1: Final = f"{SEALED}1:"
"""What begins a text of this form; base64 of AES-SIV's output follows."""


class UriSeal:
    """Seals the URIs of one cluster's links, and opens them.

    A text is bound to the vhost and the name of its parameter: those of two do not show whether
    their URIs are the same.
    """

    def __init__(self, key: Callable[[], bytes]) -> None:
        """Make it; key: derives the 64 bytes of the cipher, called once one is needed."""
        self._key = key

    @cached_property
    def _cipher(self) -> Any:
        # Loaded here, since it takes 70 ms and most nodes have no link with a password.
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        try:
            return AESSIV(self._key())
        except UnsupportedAlgorithm as error:  # an older OpenSSL, or one that is kept to FIPS
            raise InternalError(
                "the library `cryptography` of this node has no AES-SIV, which seals passwords of "
                "links: install its wheel, or build it with OpenSSL 3; or set a URI without one"
            ) from error

    def sealed(self, parameter: Parameter) -> Parameter:
        """Return a parameter, as a user has given it, as the definitions are to have it; Refusal.

        What a user gives is sealed even if it looks like sealed text: a user that has read that in
        a copy of the definitions cannot have it opened, and sent to a host, by giving it back.
        """
        bound = [parameter.vhost.encode(), parameter.name.encode()]

        def seal(uri: str) -> str:
            if not has_password(uri):
                return uri
            return SEALED_1 + base64.b64encode(self._cipher.encrypt(uri.encode(), bound)).decode()

        return _changed(parameter, seal)

    def opened(self, parameter: Parameter) -> Parameter:
        """Return a parameter of the definitions as it was given.

        What cannot be opened, since it was sealed with another key, remains, and
        `parse_shovel_uri` says so.
        """
        bound = [parameter.vhost.encode(), parameter.name.encode()]

        def open_uri(uri: str) -> str:
            if not uri.startswith(SEALED_1):
                return uri
            from cryptography.exceptions import InvalidTag

            try:
                data = base64.b64decode(uri.removeprefix(SEALED_1), validate=True)
                return str(self._cipher.decrypt(data, bound).decode())
            except (InvalidTag, ValueError, Refusal):
                return uri

        return _changed(parameter, open_uri)


def _changed(parameter: Parameter, change: Callable[[str], str]) -> Parameter:
    if not parameter.vhost:
        return parameter  # global, or a static shovel's: no link of the definitions
    return msgspec.structs.replace(parameter, value=with_uris(parameter.value, change))
