"""URIs with passwords are sealed in the definitions, and opened where links are run or shown."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers import aead
from hypothesis import given
from hypothesis import strategies as st

from machines.definition_files.around import SEAL, exported, load
from machines.metadata.world import World
from warren_broker.cluster.secret_keys import link_key
from warren_broker.transfers.federation.links import FederationLinks
from warren_broker.transfers.shovel.sealed_uris import SEALED_1, UriSeal
from warren_broker.transfers.shovel.shovels import Shovels
from warren_machines.metadata.records import Parameter
from warren_machines.metadata.upstreams import upstreams_of
from warren_wire.admin.shovels import STARTING, TERMINATED
from warren_wire.errors import InternalError, InvalidArgument
from warren_wire.links.uris import HIDDEN, parse_shovel_uri, without_passwords

OTHER = UriSeal(lambda: b"x" * 64)
VALUE = {
    "src-uri": ["amqp://u:secret@h/v", "amqps://h?certfile=a&pass%77ord=secret", "amqp://h"],
    "src-queue": "q",
    "dest-uri": "amqp://",
    "dest-queue": "amqp://u:secret@is-a-name",
}
SHOVEL = Parameter("/", "shovel", "s", VALUE, "ann")


def test_only_uris_with_passwords_are_sealed_and_all_are_as_they_were_afterwards() -> None:
    sealed = SEAL.sealed(SHOVEL)
    one, two, plain = sealed.value["src-uri"]
    assert one.startswith(SEALED_1) and two.startswith(SEALED_1) and plain == "amqp://h"
    rest = {key: value for key, value in VALUE.items() if key != "src-uri"}
    assert {key: sealed.value[key] for key in rest} == rest
    assert SEAL.opened(sealed) == SHOVEL, "the setter, too"
    assert SEAL.opened(SHOVEL) == SHOVEL, "one of an older version"


def described(parameter: Parameter, node: str) -> tuple[bool, Any]:
    """Return what is shown of a shovel before it has run."""
    shovels: Any = None
    return Shovels.described(shovels, parameter, node)


def test_equal_uris_of_a_parameter_are_equal_texts_and_of_two_are_not() -> None:
    """Nodes that load the same file at the same time change nothing for each other."""
    assert SEAL.sealed(SHOVEL) == UriSeal(lambda: bytes(64)).sealed(SHOVEL)
    texts = {
        SEAL.sealed(Parameter(vhost, "shovel", name, VALUE)).value["src-uri"][0]
        for vhost, name in (("/", "s"), ("/", "t"), ("v", "s"), ("/s", ""))
    }
    assert len(texts) == 4


def test_a_text_of_another_secret_says_so_and_what_to_do() -> None:
    unreadable = OTHER.opened(SEAL.sealed(SHOVEL))
    assert unreadable == SEAL.sealed(SHOVEL)
    runs, info = described(unreadable, "a")
    assert not runs and info.state == TERMINATED
    assert "src-uri was sealed with another secret of the cluster" in info.reason
    assert "set the parameter again" in info.reason
    assert without_passwords(unreadable.value)["src-uri"][:2] == [HIDDEN, HIDDEN]
    moved = msgspec.structs.replace(SEAL.sealed(SHOVEL), name="t")
    assert not described(SEAL.opened(moved), "a")[0], "it is another parameter's"


def test_sealed_text_that_a_user_gives_is_not_opened() -> None:
    """Otherwise the reader of a backup could have a node connect with the passwords in it."""
    read = SEAL.sealed(SHOVEL).value["src-uri"][0]
    given = Parameter("/", "shovel", "s", {**VALUE, "src-uri": read})
    with pytest.raises(InvalidArgument, match="was sealed with another secret"):
        parse_shovel_uri("src-uri", read)
    assert SEAL.opened(SEAL.sealed(given)) == given
    assert not described(SEAL.opened(SEAL.sealed(given)), "a")[0]


@given(st.one_of(st.text(max_size=90), st.binary(max_size=60).map(lambda one: one.decode("latin"))))
def test_whatever_stands_behind_the_prefix_raises_nothing(text: str) -> None:
    packed = base64.b64encode(text.encode()).decode()
    for uri in (text, SEALED_1 + text, SEALED_1 + packed, f"amqp://u:{text}@h"):
        parameter = Parameter("/", "federation-upstream", "u", {"uri": uri})
        assert SEAL.opened(SEAL.sealed(parameter)) == parameter
        SEAL.opened(parameter)


def test_a_link_of_an_upstream_is_told_what_was_set() -> None:
    value = {"uri": "amqp://u:secret@h", "queue": "far"}
    upstream = Parameter("/", "federation-upstream", "up", value, "ann")
    kept = {("federation-upstream", "up"): SEAL.sealed(upstream)}
    (found,) = upstreams_of(kept, {"federation-upstream": "up"})
    nothing: Any = SimpleNamespace()
    links = FederationLinks(nothing, nothing, "here", nothing, SEAL)
    link = Parameter("/", "link", "up", {"queue": "q", "group": 7, "upstream": found.value}, "ann")
    opened = SEAL.opened(link)
    assert links.job(opened)["value"]["src-uri"] == "amqp://u:secret@h"
    runs, info = links.described(opened, "a")
    assert runs and info.state == STARTING and "secret" not in str(info)
    assert not links.described(link, "a")[0]


def test_an_import_seals_and_a_repeat_of_it_is_no_change() -> None:
    world = World()
    given = {"vhost": "/", "component": "shovel", "name": "s", "value": VALUE}
    assert load(world, {"parameters": [given]}).created
    kept = world.state.parameters("/")["shovel", "s"]
    assert "u:secret@h" not in str(kept.value) and SEAL.opened(kept).value == VALUE
    report = load(world, {"parameters": [given]})
    assert not report.changed and report.unchanged
    assert exported(world).document["parameters"] == [given] and not exported(world).notes
    one_vhost, there = exported(world, "/").document, World()
    load(there, one_vhost, "/")
    assert exported(there, "/").document == one_vhost
    report = load(world, {"parameters": [{**given, "value": {**VALUE, "src-uri": "amqp://u:x@h"}}]})
    assert report.changed


def test_an_import_seals_what_an_older_version_has_kept() -> None:
    world = World()
    world.state.scopes["/"].parameters["shovel", "s"] = msgspec.structs.replace(SHOVEL, user=None)
    given = {"vhost": "/", "component": "shovel", "name": "s", "value": VALUE}
    assert exported(world).document["parameters"] == [given]
    assert load(world, {"parameters": [given]}).changed
    assert "u:secret@h" not in str(world.state.parameters("/")["shovel", "s"].value)


def test_an_export_names_what_it_cannot_read() -> None:
    world = World()
    world.state.scopes["/"].parameters["shovel", "s"] = OTHER.sealed(SHOVEL)
    (note,) = exported(world).notes
    assert "parameter 's' of component 'shovel' in vhost '/'" in note and "another secret" in note


def test_a_node_without_the_cipher_refuses_passwords_and_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(key: bytes) -> None:
        raise UnsupportedAlgorithm("OpenSSL 1.1.1")

    monkeypatch.setattr(aead, "AESSIV", refuse)
    without = UriSeal(lambda: bytes(64))
    with pytest.raises(InternalError, match="AES-SIV"):
        without.sealed(SHOVEL)
    assert without.opened(SEAL.sealed(SHOVEL)) == SEAL.sealed(SHOVEL)
    plain = msgspec.structs.replace(SHOVEL, value={"src-uri": "amqp://", "dest-uri": "amqp://h"})
    assert without.sealed(plain) == plain


def test_the_key_is_of_the_secret_and_of_the_cluster() -> None:
    keys = {link_key("one", "a"), link_key("two", "a"), link_key("one", "b")}
    assert len(keys) == 3 and {len(key) for key in keys} == {64}
