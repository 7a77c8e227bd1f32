"""Handlers of the requests for users. Every change is logged with the requesting user.

`listeners.eviction` disconnects the clients concerned.
"""

from __future__ import annotations

import os

from warren_broker.admin.caller import PERFORMED, Answer, Asker
from warren_machines.metadata import commands as metadata
from warren_machines.metadata import passwords
from warren_machines.metadata.records import User
from warren_machines.metadata.state import MetadataState
from warren_wire import errors
from warren_wire.admin import users as m
from warren_wire.admin.requests import Put
from warren_wire.quoting import quoted

LISTED_MAX = 5_000
"""Values in one answer: Proton's values hold 65,535 parts."""
LESS = "one user's or vhost's"


def _whoami(asker: Asker, request: m.GetWhoAmIRequest, answer: Answer) -> None:
    answer(m.WhoAmI(asker.user, asker.access.tags, asker.rights is None))


def _renew_token(asker: Asker, request: m.RenewTokenRequest, answer: Answer) -> None:
    renewed = asker.then(answer, lambda result: PERFORMED)
    asker.broker.logins.open_vhost(asker.vhost, asker.user, renewed)


def _shown(user: User) -> m.UserInfo:
    algorithm = passwords.algorithm_of(user.password_hash)
    return m.UserInfo(user.name, user.password_hash, algorithm, user.tags)


def user_of(state: MetadataState, name: str) -> User:
    """Return a user of the definitions; raises NotFound."""
    found = state.users.get(name)
    if found is None:
        raise errors.NotFound(f"no user '{name}'")
    return found


def _list_users(asker: Asker, request: m.ListUsersRequest, answer: Answer) -> None:
    known = asker.state.users
    shown = [_shown(known[name]) for name in sorted(known)]
    answer(asker.listed(shown, LISTED_MAX, "users", LESS))


def _get_user(asker: Asker, request: m.GetUserRequest, answer: Answer) -> None:
    answer(_shown(user_of(asker.state, request.user)))


def _put_user(asker: Asker, request: m.PutUserRequest, answer: Answer) -> None:
    known = asker.state.users.get(request.user)
    if request.password is not None:
        hashed = passwords.hash_password(request.password, os.urandom(passwords.SALT_BYTES))
    elif request.password_hash is not None:
        hashed = passwords.checked(request.password_hash, request.hashing_algorithm)
    elif known is not None:
        hashed = known.password_hash
    else:
        raise errors.InvalidArgument(
            f"user '{request.user}' is new: give password, or password_hash ('' for a user that "
            "cannot log in with a password)"
        )
    tags = request.tags
    if tags is None:
        tags = known.tags if known is not None else ()
    what = (
        f"{'change' if known else 'add'} user {quoted(request.user)}, tags "
        f"{quoted(', '.join(tags))}"
    )
    command = metadata.PutUser(User(request.user, hashed, tags))
    asker.change(what, command, answer, Put(known is None))


def _delete_user(asker: Asker, request: m.DeleteUserRequest, answer: Answer) -> None:
    user_of(asker.state, request.user)
    command = metadata.DeleteUser(request.user)
    asker.change(f"delete user {quoted(request.user)}", command, answer)
