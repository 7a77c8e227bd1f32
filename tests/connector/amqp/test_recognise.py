"""Recognition of redelivered messages, against a model that is slow and obvious."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_warren.rows.identities import IDENTITY_BYTES
from pyspark_warren.spool.recognise import OLD, RowMemory, delivery_counts, identities_of
from tests.connector.amqp.spooling import rows, with_id
from warren_wire.amqp091.properties import NONE, Properties, encode


def identity(body: bytes = b"b", properties: bytes = NONE) -> bytes:
    """The identity of one delivery."""
    return identities_of(rows([body], properties=properties))


# ------------------------------------------------------------------ identities


def test_each_row_has_its_identity_wherever_it_is_in_a_batch() -> None:
    bodies = [b"", b"a", b"b", b"a" * 5000]
    together = identities_of(rows(bodies))
    assert together == b"".join(identity(body) for body in bodies)
    assert identities_of(rows(bodies).slice(1, 2)) == together[IDENTITY_BYTES : 3 * IDENTITY_BYTES]
    assert len({identity(body) for body in bodies}) == len(bodies)


@pytest.mark.parametrize("message_id", [None, "m1"])
def test_what_a_broker_adds_at_a_redelivery_does_not_count(message_id: str | None) -> None:
    """RabbitMQ sorts the table when it adds the count."""
    first = encode(Properties(headers={"z": 1, "a": "x"}, message_id=message_id, app_id="app"))
    headers = {"a": "x", "x-acquired-count": 3, "x-delivery-count": 2, "z": 1}
    again = encode(Properties(headers=headers, message_id=message_id, app_id="app"))
    assert identity(b"b", first) == identity(b"b", again)
    bare = encode(Properties(message_id=message_id))
    counted = encode(Properties(headers={"x-delivery-count": 2}, message_id=message_id))
    assert identity(b"b", bare) == identity(b"b", counted)


def test_what_a_publisher_wrote_counts() -> None:
    different = [
        (b"b", NONE),
        (b"c", NONE),
        (b"b", encode(Properties(headers={"a": 1}))),
        (b"b", encode(Properties(headers={"a": 2}))),
        (b"b", encode(Properties(content_type="text/plain"))),
        (b"b", with_id("1")),
        (b"b", with_id("2")),
        (b"c", with_id("2")),
    ]
    assert len({identity(*each) for each in different}) == len(different)


@given(st.binary(max_size=60))
def test_any_bytes_as_properties_have_an_identity(raw: bytes) -> None:
    assert len(identity(b"b", raw)) == IDENTITY_BYTES
    assert identity(b"b", raw) == identity(b"b", raw)


# ------------------------------------------------------------------ equal messages


def test_equal_messages_are_counted() -> None:
    """Three equal rows are not acknowledged: of five equal redeliveries two are new rows."""
    memory = RowMemory(0, 100)
    memory.add(0, identity() * 3, memory.begin_session())
    memory.end_session(1)
    session = memory.begin_session()
    assert [memory.match(identity(), session) for _ in range(5)] == [0, 1, 2, None, None]


def test_equal_messages_are_doubled_rather_than_lost() -> None:
    """Settled rows without an id do not answer for a message that may be another one."""
    memory = RowMemory(0, 100)
    memory.add(0, identity() * 2 + identity(b"other"), memory.begin_session())
    memory.settle(3)
    memory.end_session(1)
    session = memory.begin_session()
    assert memory.match(identity(), session) is None
    assert memory.match(identity(b"other"), session) == 2


@pytest.mark.parametrize("settled", [0, 1])
def test_an_equal_message_on_the_channel_that_has_the_row_is_another_one(settled: int) -> None:
    """RabbitMQ 4 sends a message again to a channel that lives with a higher count, or not."""
    memory = RowMemory(0, 100)
    session = memory.begin_session(counting=True)
    memory.add(0, identity(), session)
    memory.settle(settled)
    assert memory.match(identity(), session, None) == 0, "its properties are malformed"
    assert memory.match(identity(), session, (0, 0)) is None, "a classic queue"
    assert memory.match(identity(), session, (1, 0)) == 0, "a quorum queue may return it"
    assert memory.match(identity(), session, (1, 0)) is None, "not twice with the same count"
    assert memory.match(identity(), session, (1, 1)) == 0, "either count rises"
    other = memory.begin_session(counting=True)
    assert memory.match(identity(), other, (0, 0)) == 0, "the first channel may have ended"
    memory.end_session(other)
    memory.check()


def test_of_a_broker_that_is_not_known_it_is_taken_for_the_same() -> None:
    memory = RowMemory(0, 100)
    session = memory.begin_session()
    memory.add(0, identity(), session)
    assert memory.match(identity(), session, (0, 0)) == 0


def test_with_an_id_it_is_the_same_on_the_same_channel_too() -> None:
    memory = RowMemory(0, 100)
    session = memory.begin_session(counting=True)
    one = identity(b"b", with_id("1"))
    memory.add(0, one, session)
    assert memory.match(one, session, (0, 0)) == 0


def test_unmarked_messages_are_compared_where_the_broker_does_not_mark() -> None:
    """Rows that have to come again answer; others only for an id that another session has."""
    memory = RowMemory(0, 100)
    first = memory.begin_session(compared=True)
    named, ping = identity(b"b", with_id("1")), identity(b"ping")
    memory.add(0, ping + named + identity(b"x") + named, first)
    assert memory.match_first(named, first) is None, "the publisher sent it twice"
    assert not memory.compares(first), "it has received all rows itself"
    memory.settle(2)
    memory.end_session(first, [identity(b"x")])
    second = memory.begin_session(compared=True)
    assert memory.compares(second)
    assert memory.match_first(ping, second) is None, "a new one: the other was acknowledged"
    assert memory.match_first(identity(b"x"), second) == 2, "it was not settled"
    assert memory.match_first(identity(b"x"), second) == 2, "nor is its acknowledgement known"
    assert memory.match_first(identity(b"x"), second) is None, "it comes once for each"
    assert [memory.match_first(named, second) for _ in range(2)] == [3, None]
    memory.check()


def test_without_an_id_what_the_session_has_is_another() -> None:
    memory = RowMemory(0, 100)
    session = memory.begin_session(compared=True)
    memory.add(0, identity(), session)
    assert memory.match(identity(), session) is None
    other = memory.begin_session(compared=True)
    assert memory.match(identity(), other) == 0


@pytest.mark.parametrize("keep", [2, 1000])
def test_the_index_outlives_rows_that_are_forgotten(keep: int) -> None:
    memory = RowMemory(0, keep)
    for at in range(40):
        session = memory.begin_session()
        memory.add(at, identity(b"%d" % at, with_id("1")), session)
        memory.end_session(session)
        memory.settle(at + 1)
        newest = memory.match(identity(b"%d" % at, with_id("1")), memory.begin_session())
        assert newest == at
        for old in range(at + 1):
            found = memory.match(identity(b"%d" % old, with_id("1")), OLD)
            assert (found == old) is memory.remembers(old, old + 1)


def test_a_publishers_count_is_none_of_the_brokers() -> None:
    """1. A message is published with a count of 5.  2. A quorum queue returns it, with its own."""
    memory = RowMemory(0, 100)
    session = memory.begin_session(counting=True)
    memory.add(0, identity(), session)  # not redelivered: its counts are not noted
    assert memory.match(identity(), session, (1, 0)) == 0


def test_the_counts_of_a_message() -> None:
    headers = {"a": 1, "x-acquired-count": 3, "x-delivery-count": 2}
    assert delivery_counts(encode(Properties(headers=headers))) == (3, 2)
    assert delivery_counts(encode(Properties(headers={"x-delivery-count": "no"}))) == (0, 0)
    assert delivery_counts(NONE) == (0, 0)
    assert delivery_counts(b"\x20\x00\xff") is None


def test_with_a_message_id_settled_rows_are_recognised() -> None:
    memory = RowMemory(0, 100)
    one = identity(b"b", with_id("1"))
    memory.add(0, one * 2, memory.begin_session())
    memory.settle(2)
    assert memory.match(one, 1) == 1


def test_many_equal_rows_are_matched_in_one_pass() -> None:
    """A search from the first row each time would take minutes."""
    memory = RowMemory(0, 100)
    count = 50_000
    memory.add(0, identity() * count, memory.begin_session())
    memory.end_session(1)
    session = memory.begin_session()
    one = identity()
    assert [memory.match(one, session) for _ in range(count)] == list(range(count))


def test_rows_of_an_ended_session_are_remembered_while_others_come_and_go() -> None:
    """The broker may notice the end of a connection a million messages later."""
    memory = RowMemory(0, 10)
    memory.add(0, b"".join(identity(b"%d" % n) for n in range(10)), OLD)
    session = memory.begin_session()
    at = 10
    for _ in range(20):
        memory.add(at, identities_of(rows([b"n%d" % n for n in range(at, at + 5000)])), session)
        at += 5000
        memory.settle(at)
    assert [memory.match(identity(b"%d" % n), session) for n in range(10)] == list(range(10))
    assert memory.match(identity(b"n100"), session) is None, "far back, and acknowledged"
    assert memory.match(identity(b"n%d" % (at - 1)), session) == at - 1


# ------------------------------------------------------------------ the model


@dataclass
class SlowMemory:
    """`RowMemory` as a list of (identity, holder), all of it searched each time."""

    settled: int = 0
    rows: list[tuple[bytes, int]] = field(default_factory=list)

    def match(self, wanted: bytes, session: int, live: set[int]) -> int | None:
        found = [at for at, (one, _) in enumerate(self.rows) if one == wanted]
        due = [at for at in found if at >= self.settled and self.rows[at][1] not in live]
        if due:
            row = due[0]
        elif found and (len(found) == 1 or wanted.endswith(b"\x01")):
            row = found[-1]
        else:
            return None
        self.rows[row] = (wanted, session)
        return row


@pytest.mark.parametrize("seed", range(40))
def test_the_index_finds_what_a_search_finds(seed: int) -> None:
    random = Random(seed)
    memory, slow = RowMemory(0, 10_000), SlowMemory()
    names = [identity(b"%d" % n, with_id("i") if n % 2 else NONE) for n in range(8)]
    session = memory.begin_session()
    for _ in range(300):
        chance = random.random()
        if chance < 0.1:
            memory.end_session(random.choice(sorted(memory.live)))
            session = memory.begin_session()
        elif chance < 0.2:
            session = memory.begin_session()
        elif chance < 0.3:
            position = random.randint(slow.settled, len(slow.rows))
            memory.settle(position)
            slow.settled = position
        elif chance < 0.6:
            new = random.choices(names, k=random.randint(1, 4))
            memory.add(len(slow.rows), b"".join(new), session)
            slow.rows += [(one, session) for one in new]
        else:
            wanted = random.choice(names)
            assert memory.match(wanted, session) == slow.match(wanted, session, memory.live)
        memory.check()
        if slow.rows:
            start = random.randrange(len(slow.rows))
            first, found = memory.identities(start, len(slow.rows))
            assert (first, found) == (start, b"".join(one for one, _ in slow.rows[start:]))
