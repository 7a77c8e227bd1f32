"""The login of a connection: a password, or a token in its place, and where it comes from."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from pyspark_warren.options import Options
from pyspark_warren.secret import Secret
from pyspark_warren.tokens import LoginToken, TokenSource, token_source
from warren.uri import Address

_USER_DEFAULT: Final = Address().user
_USER_OF_FILE: Final = "oauth2"
"""Given with a token of `tokenFile`: without a user the client would log in as ANONYMOUS."""


class LoginAddress(NamedTuple):
    """An address with the password of one connection.

    token, source  where the password is a token: it, and what gives the next one
    """

    address: Address
    token: LoginToken | None = None
    source: TokenSource | None = None


def login_address(options: Options) -> LoginAddress:
    """Return the address to connect to, with its password; a token may have to be asked for.

    raises  OptionError, which never shows what was read; TokenError, BrokerUnavailableError
    """
    address = options.address()
    source = token_source(options)
    if source is not None:
        token = source.token()
        return LoginAddress(address.with_credentials(_user(options), token.text), token, source)
    return LoginAddress(address_with_password(options))


def address_with_password(options: Options) -> Address:
    """Return the address to connect to, with its password."""
    return options.address().with_credentials(None, _of_options(options))


def address_for_tokens(options: Options) -> Address:
    """Return the address to connect to with tokens, of which it has none."""
    return options.address().with_credentials(_user(options) or _USER_OF_FILE, "")


def without_secrets(options: Options) -> Options:
    """Return the options for tasks that do not use the broker."""
    return replace(options, password="", oauth_client_secret=None)


def _of_options(options: Options) -> str | None:
    """Return the password of the file or variable; None: it is in the options."""
    file, variable = options.password_file, options.password_env
    return Secret("password", "password", None, file, variable).read()


def _user(options: Options) -> str:
    """Return the user to give with a token, which itself says the user: for the broker's log."""
    return (options.oauth_client_id or "") if options.user == _USER_DEFAULT else options.user
