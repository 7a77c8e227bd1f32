"""Users, vhosts, permissions through `/management`, from the request to its answer."""

from __future__ import annotations

from typing import Any

import pytest

from broker.admin.world import ManagementWorld
from warren_machines.metadata import passwords, vhosts_and_users
from warren_machines.metadata.records import Grant

RABBITMQS = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
"""Its documentation's hash of test12."""


class World(ManagementWorld):
    """A user of each rank, and one without any."""

    users = {
        "ann": (),
        "boss": ("administrator",),
        "eve": ("management",),
        "watch": ("monitoring",),
    }
    grants = (("a/b", "eve"),)


PERMISSIONS = {"configure": "^a", "write": ".*", "read": "^$"}
TOPICS = {"exchange": "amq.topic", "write": "^k", "read": ".*"}
CHANGES = [
    ("PUT", "/users/ann", {"tags": "x"}),
    ("PUT", "/users/new", {"password": "p"}),
    ("DELETE", "/users/ann", None),
    ("PUT", "/vhosts/v", None),
    ("PUT", "/vhosts/a%2Fb/tracing", None),
    ("DELETE", "/vhosts/a%2Fb/tracing", None),
    ("POST", "/vhosts/a%2Fb/deletion/protection", None),
    ("DELETE", "/vhosts/a%2Fb/deletion/protection", None),
    ("DELETE", "/vhosts/a%2Fb", None),
    ("PUT", "/permissions/a%2Fb/ann", PERMISSIONS),
    ("DELETE", "/permissions/a%2Fb/eve", None),
    ("PUT", "/topic-permissions/a%2Fb/ann", TOPICS),
    ("DELETE", "/topic-permissions/a%2Fb/ann", None),
]
LOOKS = [
    "/users",
    "/users/ann",
    "/users/ann/permissions",
    "/users/ann/topic-permissions",
    "/permissions",
    "/topic-permissions",
    "/permissions/a%2Fb/eve",
    "/topic-permissions/a%2Fb/eve",
    "/vhosts/a%2Fb/permissions",
]


@pytest.mark.parametrize("user", ["ann", "eve", "watch", "nobody"])
@pytest.mark.parametrize(
    ("method", "path", "body"), [*CHANGES, *(("GET", path, None) for path in LOOKS)]
)
def test_only_an_administrator_may(user: str, method: str, path: str, body: Any) -> None:
    world = World(user)
    before = (
        dict(world.made.state.users),
        dict(world.made.state.grants),
        sorted(world.made.state.scopes),
    )
    status, answer = world.ask(method, path, body)
    assert status == 403 and "'administrator' is needed" in answer["detail"]
    assert before == (
        world.made.state.users,
        world.made.state.grants,
        sorted(world.made.state.scopes),
    )


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
def test_an_administrator_may(method: str, path: str, body: Any) -> None:
    status, answer = World("boss").ask(method, path, body)
    assert status in (201, 204) and answer is None


def test_everybody_may_ask_who_it_is() -> None:
    for user, tags in (("ann", []), ("eve", ["management"])):
        shown = {"name": user, "tags": tags, "is_internal_user": True}
        assert World(user).ask("GET", "/whoami") == (200, shown)


def test_a_user_is_added_changed_deleted() -> None:
    world = World()
    users = world.made.state.users
    assert world.ask("PUT", "/users/a%2Fb", {"password": "secret", "tags": "x,, y"})[0] == 201
    assert users["a/b"].tags == ("x", "y")
    assert passwords.matches("secret", users["a/b"].password_hash)
    assert world.ask("PUT", "/users/a%2Fb", {"tags": ["z", "z"]})[0] == 204
    assert users["a/b"].tags == ("z",)
    assert passwords.matches("secret", users["a/b"].password_hash)
    assert world.ask("PUT", "/users/a%2Fb", {"password_hash": RABBITMQS})[0] == 204
    assert users["a/b"].tags == ("z",) and passwords.matches("test12", users["a/b"].password_hash)
    assert world.ask("GET", "/users/a%2Fb") == (
        200,
        {
            "name": "a/b",
            "password_hash": RABBITMQS,
            "tags": ["z"],
            "hashing_algorithm": "rabbit_password_hashing_sha256",
        },
    )
    assert world.ask("PUT", "/users/a%2Fb", {"password_hash": ""})[0] == 204
    assert not passwords.matches("", users["a/b"].password_hash)
    assert world.ask("DELETE", "/users/a%2Fb") == (204, None)
    assert world.ask("DELETE", "/users/a%2Fb")[0] == world.ask("GET", "/users/a%2Fb")[0] == 404
    names = [user["name"] for user in world.ask("GET", "/users")[1]]
    assert names == ["ann", "boss", "eve", "guest", "watch"]


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("/users/new", None, "give password"),
        ("/users/new", {"tags": "x"}, "give password"),
        ("/users/ann", {"password": ""}, "0 characters"),
        ("/users/", {"password": "p"}, "empty"),
        ("/users/ann", {"password": "p", "password_hash": RABBITMQS}, "give one of them"),
        ("/users/ann", {"password_hash": "abc"}, "not base64"),
        ("/users/ann", {"password_hash": RABBITMQS, "hashing_algorithm": "md5"}, "known: rabbit"),
        ("/users/ann", {"password": 5}, "password is a int"),
        ("/users/ann", {"tags": 5}, "tags"),
        ("/users/ann", {"pass": "p"}, "unknown key"),
        ("/vhosts/", None, "empty"),
        ("/permissions/a%2Fb/ann", {**PERMISSIONS, "write": "["}, "write='['"),
        ("/permissions/a%2Fb/ann", {"configure": ""}, "lacks 'write'"),
        ("/topic-permissions/a%2Fb/ann", {**TOPICS, "exchange": ""}, "empty"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason_that_shows_no_password(
    path: str, body: Any, text: str
) -> None:
    status, answer = World().ask("PUT", path, body)
    assert status == 400 and text in answer["detail"], answer
    assert RABBITMQS not in answer["detail"]


def test_the_last_administrator_stays() -> None:
    world = World("boss")
    assert world.ask("DELETE", "/users/guest")[0] == 204
    for method, body in (("DELETE", None), ("PUT", {"tags": ""})):
        status, answer = world.ask(method, "/users/boss", body)
        assert status == 409 and "is the last one with the tag 'administrator'" in answer["detail"]
    assert world.ask("PUT", "/users/ann", {"tags": "administrator"})[0] == 204
    assert world.ask("DELETE", "/users/boss")[0] == 204


def test_who_adds_a_vhost_may_use_it() -> None:
    world = World("boss")
    assert world.ask("PUT", "/vhosts/v", {"description": "d", "tags": ["t"]})[0] == 201
    assert world.made.state.grants["v", "boss", None] == Grant("v", "boss", ".*", ".*", ".*")
    assert world.ask("PUT", "/vhosts/v", {"tags": []})[0] == 204
    assert world.ask("GET", "/vhosts/v") == (
        200,
        {
            "name": "v",
            "description": "d",
            "tags": [],
            "default_queue_type": "quorum",
            "tracing": False,
            "protected_from_deletion": None,
        },
    )
    assert ("a/b", "boss", None) not in world.made.state.grants
    assert world.ask("PUT", "/vhosts/a%2Fb", {})[0] == 204  # there already: nothing is given
    assert ("a/b", "boss", None) not in world.made.state.grants
    assert world.ask("DELETE", "/vhosts/v")[0] == 204
    assert world.ask("DELETE", "/vhosts/v")[0] == world.ask("GET", "/vhosts/v")[0] == 404


def test_a_vhost_has_a_default_queue_type() -> None:
    world = World("boss")

    def shown() -> str:
        return str(world.ask("GET", "/vhosts/v")[1]["default_queue_type"])

    assert world.ask("PUT", "/vhosts/v", {"default_queue_type": "classic"})[0] == 201
    assert shown() == "classic"
    assert world.ask("PUT", "/vhosts/v", {"description": "d"})[0] == 204
    assert shown() == "classic", "what is not given stays"
    for bad in ("stream", "Quorum", 7):
        status, answer = world.ask("PUT", "/vhosts/v", {"default_queue_type": bad})
        assert status == 400, answer
    assert shown() == "classic"
    for none in ("undefined", ""):
        assert world.ask("PUT", "/vhosts/v", {"default_queue_type": none})[0] == 204
        assert world.made.state.scopes["v"].vhost.default_queue_type == ""
    restored = world.made.machine.restore(world.made.machine.snapshot(world.made.state))
    assert restored.scopes["v"].vhost.description == "d"


def test_a_protected_vhost_is_not_deleted_until_it_is_unprotected() -> None:
    world, guard = World("boss"), "/vhosts/a%2Fb/deletion/protection"

    def shown() -> Any:
        return world.ask("GET", "/vhosts/a%2Fb")[1]["protected_from_deletion"]

    assert shown() is None
    for method in ("POST", "DELETE"):
        assert world.ask(method, "/vhosts/none/deletion/protection")[0] == 404
    for _ in range(2):
        assert world.ask("POST", guard)[0] == 204
        assert shown() is True
    assert world.ask("PUT", "/vhosts/a%2Fb", {"description": "d"})[0] == 204
    status, answer = world.ask("DELETE", "/vhosts/a%2Fb")
    assert status == 409
    assert answer["detail"] == (
        "Refusing to delete virtual host 'a/b' because it is protected from deletion"
    )
    assert world.ask("GET", "/parameters")[1] == [], "the flag is not shown as a parameter"
    assert world.ask("DELETE", "/parameters/vhost/a%2Fb/protected_from_deletion")[0] == 404
    restored = world.made.machine.restore(world.made.machine.snapshot(world.made.state))
    assert vhosts_and_users.protected(restored, "a/b") is True
    assert world.ask("DELETE", guard)[0] == 204
    assert shown() is False
    assert world.ask("DELETE", "/vhosts/a%2Fb")[0] == 204


def test_a_vhost_is_traced() -> None:
    world = World()

    def shown(vhost: str = "a%2Fb") -> bool:
        return bool(world.ask("GET", f"/vhosts/{vhost}")[1]["tracing"])

    assert not shown()
    for _ in range(2):
        assert world.ask("PUT", "/vhosts/a%2Fb/tracing")[0] == 204
        assert shown() and world.traced == {"a/b"}
    for _ in range(2):
        assert world.ask("DELETE", "/vhosts/a%2Fb/tracing")[0] == 204
        assert not shown() and not world.traced
    for method in ("PUT", "DELETE"):
        assert world.ask(method, "/vhosts/none/tracing")[0] == 404
    assert world.ask("PUT", "/vhosts/a%2Fb/tracing", {"on": True})[0] == 400
    assert not world.traced


def test_a_vhost_is_traced_as_over_rabbitmqs_api() -> None:
    world = World()
    assert world.ask("PUT", "/vhosts/v", {"tracing": True})[0] == 201
    assert world.traced == {"v"}
    assert world.ask("PUT", "/vhosts/v", {"description": "d"})[0] == 204
    assert world.traced == {"v"}, "what is not given is unchanged"
    assert world.ask("PUT", "/vhosts/v", {"tracing": "yes"})[0] == 400
    assert world.ask("PUT", "/vhosts/v", {"tracing": False})[0] == 204
    assert not world.traced


def test_which_vhosts_are_seen() -> None:
    def seen(user: str) -> Any:
        status, answer = World(user).ask("GET", "/vhosts")
        return [vhost["name"] for vhost in answer] if status == 200 else status

    assert seen("boss") == seen("watch") == ["/", "a/b"]
    assert seen("eve") == ["a/b"] and seen("ann") == 403
    assert World("eve").ask("GET", "/vhosts/a%2Fb")[1]["description"] == "theirs"
    assert World("eve").ask("GET", "/vhosts/%2F")[0] == 403
    assert World("watch").ask("GET", "/vhosts/%2F")[0] == 200


def test_permissions_are_set_shown_cleared() -> None:
    world = World()
    assert world.ask("GET", "/permissions/a%2Fb/ann")[0] == 404
    assert world.ask("PUT", "/permissions/a%2Fb/ann", PERMISSIONS)[0] == 201
    assert world.ask("PUT", "/permissions/a%2Fb/ann", PERMISSIONS)[0] == 204
    shown = {"user": "ann", "vhost": "a/b", **PERMISSIONS}
    assert world.ask("GET", "/permissions/a%2Fb/ann") == (200, shown)
    assert world.ask("GET", "/users/ann/permissions") == (200, [shown])
    assert [one["user"] for one in world.ask("GET", "/vhosts/a%2Fb/permissions")[1]] == [
        "ann",
        "eve",
    ]
    assert [one["user"] for one in world.ask("GET", "/permissions")[1]] == ["guest", "ann", "eve"]
    assert world.ask("PUT", "/permissions/a%2Fb/nobody", PERMISSIONS)[0] == 404
    assert world.ask("PUT", "/permissions/nowhere/ann", PERMISSIONS)[0] == 404
    assert world.ask("DELETE", "/permissions/a%2Fb/ann")[0] == 204
    assert world.ask("GET", "/users/ann/permissions") == (200, [])


def test_topic_permissions_are_set_shown_cleared() -> None:
    world = World()
    path = "/topic-permissions/a%2Fb/ann"
    assert world.ask("PUT", path, TOPICS)[0] == 201
    assert world.ask("PUT", path, {**TOPICS, "exchange": "x"})[0] == 201
    shown = {"user": "ann", "vhost": "a/b", **TOPICS}
    assert world.ask("GET", path) == (200, [shown, {**shown, "exchange": "x"}])
    assert world.ask("GET", "/topic-permissions")[1] == world.ask("GET", path)[1]
    assert world.ask("GET", "/users/ann/permissions") == (200, [])
    assert world.ask("DELETE", path + "?exchange=x")[0] == 204
    assert world.ask("GET", path) == (200, [shown])
    assert world.ask("DELETE", path)[0] == 204
    assert world.ask("GET", "/users/ann/topic-permissions") == (200, [])
