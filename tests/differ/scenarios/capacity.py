"""Limits of vhosts and users: how many queues, connections and channels there may be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from differ.operating import Operator
from differ.script import CLASSIC, QUORUM, Script, scenario

LIMITED = "differ-limited"


@contextmanager
def limiting_a_user(s: Script) -> Iterator[Operator]:
    """Yield an operator that has made the user `LIMITED`."""
    with Operator(s) as operator:
        operator.user(LIMITED)
        yield operator


@scenario
def queues_of_a_vhost(s: Script) -> None:
    c = s.channel()
    with Operator(s) as operator:
        operator.limit("max-queues", 2)
        c.declare("a", QUORUM)
        c.declare("b", CLASSIC)
        c.declare("c", QUORUM)
        c.declare("", durable=False, exclusive=True)
        c.declare("a", QUORUM)
        c.declare("a", passive=True)
        c.delete("a")
        c.declare("c", QUORUM)
        operator.limit("max-queues", 0)
        c.declare("c", QUORUM)
        c.declare("d", QUORUM)
        operator.limit("max-queues", -1)
        c.declare("d", QUORUM)
        operator.limit("max-queues", 1)
        operator.clear_limit("max-queues")
        c.declare("e", QUORUM)


@scenario
def connections_of_a_vhost(s: Script) -> None:
    with Operator(s) as operator:
        operator.limit("max-connections", 1)
        first = operator.connects()
        operator.connects()
        operator.closes(first)
        s.wait(0.5)
        second = operator.connects()
        operator.limit("max-connections", -1)
        operator.connects()
        operator.limit("max-connections", 0)
        operator.connects()
        operator.opens_channel(second, 1)


@scenario
def connections_of_a_user(s: Script) -> None:
    with limiting_a_user(s) as operator:
        operator.limit("max-connections", 1, LIMITED)
        first = operator.connects(LIMITED)
        operator.connects(LIMITED)
        operator.connects()
        operator.closes(first)
        s.wait(0.5)
        operator.connects(LIMITED)
        operator.clear_limit("max-connections", LIMITED)
        operator.connects(LIMITED)
        operator.limit("max-connections", 0, LIMITED)
        operator.connects(LIMITED)


@scenario
def channels_of_a_user(s: Script) -> None:
    with limiting_a_user(s) as operator:
        operator.limit("max-channels", 2, LIMITED)
        wire = operator.connects(LIMITED)
        operator.opens_channel(wire, 1)
        operator.opens_channel(wire, 7)
        operator.opens_channel(wire, 8)


@scenario
def limits_that_are_refused(s: Script) -> None:
    with limiting_a_user(s) as operator:
        for value in ("1", 1.5, None, True, [1], -2):
            operator.limit("max-queues", value)
            operator.limit("max-channels", value, LIMITED)
        operator.limit("max-files", 1)
        operator.limit("max-queues", 1, LIMITED)
        operator.limit("max-channels", 1, "nobody-has-this-name")
        operator.clear_limit("max-connections")
