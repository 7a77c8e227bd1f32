"""Users, and the requests for them; the keys are RabbitMQ's."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import msgspec

from warren_wire.admin.requests import AdminRequest, Name, Secret, route
from warren_wire.errors import InvalidArgument

TAGS_MAX = 64
PASSWORD_CHARACTERS_MAX = 1024


class UserInfo(msgspec.Struct, frozen=True):
    """A user.

    hashing_algorithm  RabbitMQ's name of the algorithm of password_hash; "" without a hash
    """

    name: str
    password_hash: str
    hashing_algorithm: str
    tags: tuple[str, ...]

    def __repr__(self) -> str:
        return f"UserInfo(name={self.name!r}, tags={self.tags!r})"


class WhoAmI(msgspec.Struct, frozen=True):
    """The user of the connection.

    is_internal_user  the cluster's definitions have it; False: it is a token's
    """

    name: str
    tags: tuple[str, ...]
    is_internal_user: bool = True


class GetWhoAmIRequest(AdminRequest[WhoAmI], frozen=True):
    """Return the user of the connection. Answer: WhoAmI."""

    ROUTES: ClassVar = (route("GET /whoami", http=True),)


class RenewTokenRequest(AdminRequest[None], frozen=True):
    """Give the connection its next token; 400. Answer: Performed.

    Of a user with a password, which does not expire, it is only checked that the user may still be
    in the connection's vhost.
    """

    ROUTES: ClassVar = (route("PUT /auth/tokens", whole="secret"),)
    secret: Any = b""

    def changes(self) -> bool:
        """See the base class."""
        return False

    def checked(self) -> Self:
        """See the base class."""
        if not isinstance(self.secret, bytes):
            found = type(self.secret).__name__
            raise InvalidArgument(f"the token is a {found}; binary is expected")
        return self

    def __repr__(self) -> str:
        return "RenewTokenRequest()"


class ListUsersRequest(AdminRequest[list[UserInfo]], frozen=True):
    """Return all users, by name. Answer: Listed (UserInfo)."""

    ROUTES: ClassVar = (route("GET /users", "administrator"),)


class GetUserRequest(AdminRequest[UserInfo], frozen=True):
    """Return one user; 404. Answer: UserInfo."""

    ROUTES: ClassVar = (route("GET /users/:user", "administrator"),)
    user: Name


class PutUserRequest(AdminRequest[None], frozen=True):
    """Add a user, or change an existing one; 409 for the last administrator's tag. Answer: Put.

    password, password_hash  None: unchanged; a new user needs one of them. A hash is one of
                             RabbitMQ's forms, "" for a user that cannot log in with a password
    hashing_algorithm        of password_hash
    tags                     None: unchanged; a new user has none. A list, or a text with commas
    """

    ROUTES: ClassVar = (route("PUT /users/:user", "administrator"),)
    user: Name
    password: Secret | None = None
    password_hash: Secret | None = None
    hashing_algorithm: str = ""
    tags: Any = None

    def checked(self) -> Self:
        """See the base class."""
        password = self.password
        if password is not None and self.password_hash is not None:
            raise InvalidArgument("password and password_hash: give one of them")
        if password is not None and not 1 <= len(password) <= PASSWORD_CHARACTERS_MAX:
            raise InvalidArgument(
                f"a password of {len(password)} characters; 1 to {PASSWORD_CHARACTERS_MAX} are "
                "allowed"
            )
        return msgspec.structs.replace(self, tags=parse_tags(self.tags))

    def __repr__(self) -> str:
        return f"PutUser(user={self.user!r}, tags={self.tags!r})"


class DeleteUserRequest(AdminRequest[None], frozen=True):
    """Delete a user with its permissions; its clients are disconnected. Answer: Performed.

    Refused: 404; 409 for the last administrator.
    """

    ROUTES: ClassVar = (route("DELETE /users/:user", "administrator", http=True),)
    user: Name


def parse_tags(value: Any) -> tuple[str, ...] | None:
    """Parse a list, or a comma-separated string, as RabbitMQ does; each tag once, in order."""
    if value is None:
        return None
    if isinstance(value, str):
        value = [tag.strip() for tag in value.split(",")]
    if not isinstance(value, list | tuple) or not all(isinstance(tag, str) for tag in value):
        raise InvalidArgument("tags: a list of texts is expected, or one text with commas")
    tags = tuple(dict.fromkeys(tag for tag in value if tag))
    if len(tags) > TAGS_MAX or any(len(tag.encode()) > 255 for tag in tags):
        raise InvalidArgument(f"tags: at most {TAGS_MAX}, of at most 255 bytes each")
    return tags
