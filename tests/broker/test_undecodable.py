"""Text that is no UTF-8, and values in too many others, are refused as other damage is."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from warren_broker.cluster import messages as peer_messages
from warren_broker.http.calls import HttpCall
from warren_broker.http.replies import HttpRefusal
from warren_machines.definition_files import document
from warren_machines.queue import codec as queue_codec
from warren_machines.queue import commands
from warren_raft import messages
from warren_raft.core import membership
from warren_raft.errors import StorageError
from warren_raft.runtime import log_identity
from warren_raft.runtime.net import codec
from warren_raft.storage import manifest, snapshot
from warren_raft.storage.format import Damaged
from warren_raft.storage.framed_file import seal
from warren_raft.versions import NEWEST
from warren_wire import errors as broker_errors
from warren_wire.admin import exchanges as bindings
from warren_wire.amqp10 import viewed
from warren_wire.amqp10.fetched import MalformedPiece
from warren_wire.arguments import ARGUMENT_DEPTH_MAX
from warren_wire.undecodable import NESTING_LEVELS_MAX

TEXT = "a text"
NESTED = b"\x91" * 1_000_000 + b"\xc0"
"""A value that msgspec refuses with a RecursionError, wherever it skips it, with every Python: the
limit is 1,000 levels with 3.11, 10,000 with 3.13, and later a part of the stack."""


def damaged(value: Any) -> list[bytes]:
    """The value with its text damaged, and with one field more, which is nested too deep."""
    good = msgspec.msgpack.encode(value)
    assert TEXT.encode() in good and good[0] & 0xF0 == 0x90 and good[0] < 0x9F, good[:9]
    return [good.replace(TEXT.encode(), b"a te\xff\xff"), bytes((good[0] + 1,)) + good[1:] + NESTED]


def headed(data: bytes) -> bytes:
    """With its length before it, as three of the formats have it."""
    return len(data).to_bytes(4, "little") + data


def view(data: bytes) -> bytes:
    """A view's piece with that head."""
    return len(data).to_bytes(8, "little") + data + bytes(-len(data) % 8)


SNAPSHOT = snapshot.Snapshot(1, 1, 1, 0, (1, 1), 1, (TEXT,), (), b"", b"")
MANIFEST = manifest.Manifest(groups=(manifest.GroupRow(1, (1, 1), b"", 1, TEXT, 0, 0),))
VOTE = messages.Vote(1, TEXT, "b", 3, 10, 2)
Case = tuple[Callable[[bytes], object], type[Exception], Any]
CASES: dict[str, Case] = {
    "Raft frame": (
        lambda data: codec.decode_raft(memoryview(headed(b"\x91\x92" + data + b"\x90"))),
        codec.BadFrame,
        VOTE,
    ),
    "snapshot": (
        lambda data: snapshot.decode(seal(snapshot.MAGIC, snapshot.VERSION, [data])),
        Damaged,
        SNAPSHOT,
    ),
    "manifest": (
        lambda data: manifest.decode(seal(manifest.MAGIC, manifest.VERSION, [data])),
        Damaged,
        MANIFEST,
    ),
    "birth": (lambda data: log_identity.decode(1, data), StorageError, (1, (TEXT,), 5)),
    "peer message": (
        lambda data: peer_messages.decode(headed(data)),
        peer_messages.MalformedPeerMessage,
        peer_messages.AskShovels(1, "/", TEXT),
    ),
    "submission": (
        lambda data: queue_codec.decode_submission(headed(data)),
        queue_codec.MalformedEntry,
        commands.Submission(1, TEXT, 1, (), NEWEST),
    ),
    "view": (
        lambda data: viewed.decode_view(memoryview(view(data))),
        MalformedPiece,
        viewed.ViewHead((TEXT,), (), ()),
    ),
}


@pytest.fixture(autouse=True)
def usual_recursion_limit() -> Iterator[None]:
    """That of Python: programs that were imported in this process may have raised it."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize("of", CASES)
def test_every_decoder_refuses_it_with_its_own_error(of: str) -> None:
    decode, refused, value = CASES[of]
    for data in damaged(value):
        with pytest.raises(refused):
            decode(data)


def test_a_membership() -> None:
    """It is an array of arrays without more fields, so nothing in it can be skipped."""
    good = membership.encode(membership.Membership((TEXT,), (), ()))
    with pytest.raises(StorageError):
        membership.decode(good.replace(TEXT.encode(), b"a te\xff\xff"))


def test_a_membership_that_breaks_an_invariant() -> None:
    """It was an assertion; found by `build.py fuzz`: an id of a node that does not vote."""
    data = msgspec.msgpack.encode((("A", "b"), ("c",), (("a", 1),)))
    with pytest.raises(StorageError, match="holds no membership"):
        membership.decode(data)


@pytest.mark.parametrize("levels", [ARGUMENT_DEPTH_MAX + 1, 900, 2500, 9000])
def test_the_arguments_of_a_binding_in_a_path(levels: int) -> None:
    """Of a client: the path of its request has room for a few thousand arrays in each other."""
    with pytest.raises(broker_errors.InvalidArgument, match="args is not what GET /bindings gave"):
        bindings.parse_binding(binding_with(levels))
    assert bindings.parse_binding(binding_with(ARGUMENT_DEPTH_MAX)).arguments


def binding_with(levels: int) -> str:
    """The path of a binding, of which the arguments are a map with that many levels, itself one."""
    packed = b"\x81\xa1a" + NESTED[-levels:]
    return f"src=x;dstq=q;key=;args={base64.urlsafe_b64encode(packed).decode()}"


@pytest.mark.parametrize("levels", [NESTING_LEVELS_MAX + 1, 950, 5000, 9500, 200_000])
def test_json_of_a_client(levels: int) -> None:
    """It was decoded with 9,000 levels (Python 3.13): what walks it makes 1,000 calls at most."""
    with pytest.raises(HttpRefusal, match="not_json"):
        fields_of(json_with(levels))
    with pytest.raises(broker_errors.InvalidArgument, match="not JSON"):
        document.parse(json_with(levels))


def test_json_of_a_client_within_the_limit() -> None:
    data = json_with(NESTING_LEVELS_MAX)
    assert fields_of(data)["a"] and document.parse(data).unknown == [("the file", "a")]


def json_with(levels: int) -> bytes:
    """An object with that many levels, itself one."""
    return b'{"a": ' + b"[" * (levels - 1) + b"1" + b"]" * (levels - 1) + b"}"


def fields_of(body: bytes) -> dict[str, Any]:
    """What a route of the HTTP API gets of a body."""
    return HttpCall.fields(SimpleNamespace(body=body))  # type: ignore[arg-type]
