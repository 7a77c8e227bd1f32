"""Handlers of the requests for users. Every change is logged with the requesting user.

`listeners.eviction` disconnects the clients concerned.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from warren_broker.admin.caller import PERFORMED, Answer, Asker
from warren_broker.admin.handlers import handles
from warren_machines.metadata import commands as metadata
from warren_machines.metadata import passwords
from warren_machines.metadata.records import User
from warren_machines.metadata.state import MetadataState
from warren_wire import errors
from warren_wire.admin import users as m
from warren_wire.admin.requests import Listed, Put, Shown
from warren_wire.quoting import quoted

LISTED_MAX = 5_000
"""Values in one answer: Proton's values hold 65,535 parts."""


def looking(asker: Asker) -> MetadataState:
    """Check that an administrator asks for a read, as in RabbitMQ; return the state."""
    asker.access.must_be("administrator", "see users and permissions")
    return asker.broker.definitions.state


def answer_list(answer: Answer, values: Iterable[Any]) -> None:
    """Answer as many values as fit; raises InvalidArgument for more."""
    found = tuple(values)
    if len(found) > LISTED_MAX:
        raise errors.InvalidArgument(
            f"{len(found)} of them in one answer, {LISTED_MAX} fit; ask for one user's or vhost's"
        )
    answer(Listed(found))


@handles(m.GetWhoAmIRequest)
def _whoami(asker: Asker, request: m.GetWhoAmIRequest, answer: Answer) -> None:
    answer(Shown(m.WhoAmI(asker.user, asker.access.tags, asker.rights is None)))


@handles(m.RenewTokenRequest)
def _renew_token(asker: Asker, request: m.RenewTokenRequest, answer: Answer) -> None:
    def checked(result: Any) -> None:
        answer(result if isinstance(result, errors.Refusal) else PERFORMED)

    asker.broker.logins.open_vhost(asker.vhost, asker.user, asker.guard(checked))


def _shown(user: User) -> m.UserInfo:
    algorithm = passwords.algorithm_of(user.password_hash)
    return m.UserInfo(user.name, user.password_hash, algorithm, user.tags)


def user_of(state: MetadataState, name: str) -> User:
    """Return a user of the definitions; raises NotFound."""
    found = state.users.get(name)
    if found is None:
        raise errors.NotFound(f"no user '{name}'")
    return found


@handles(m.ListUsersRequest)
def _list_users(asker: Asker, request: m.ListUsersRequest, answer: Answer) -> None:
    state = looking(asker)
    answer_list(answer, (_shown(state.users[name]) for name in sorted(state.users)))


@handles(m.GetUserRequest)
def _get_user(asker: Asker, request: m.GetUserRequest, answer: Answer) -> None:
    answer(Shown(_shown(user_of(looking(asker), request.user))))


@handles(m.PutUserRequest)
def _put_user(asker: Asker, request: m.PutUserRequest, answer: Answer) -> None:
    asker.access.must_be("administrator", "change users")
    known = asker.broker.definitions.state.users.get(request.user)
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


@handles(m.DeleteUserRequest)
def _delete_user(asker: Asker, request: m.DeleteUserRequest, answer: Answer) -> None:
    asker.access.must_be("administrator", "delete users")
    user_of(asker.broker.definitions.state, request.user)
    command = metadata.DeleteUser(request.user)
    asker.change(f"delete user {quoted(request.user)}", command, answer)
