"""Option onBatchFailure: tries, narrowing, and one bad message among many."""

from __future__ import annotations

import json

import pytest
from spark_world.fake import FakeBroker, FakeClient, Message, quorum_queue
from spark_world.offsets import only, standing, text

from pyspark_warren.claims.driver import ClaimDriver
from pyspark_warren.claims.failed_batches import dead_letters, narrowed, tries_before
from pyspark_warren.claims.offset import ClaimInfo, Offset, Position
from pyspark_warren.errors import CheckpointBehindError, OptionError
from pyspark_warren.options.options import parse_options
from pyspark_warren.surroundings import Surroundings


class Died(Exception):
    """The driver ends here."""


class Query:
    """A query that fails whenever a batch has the bad message, with Spark's two logs."""

    def __init__(self, messages: int, bad: set[int], **options: str) -> None:
        self.broker = FakeBroker()
        self.broker.declare("q")
        self.queue = self.broker.queues["q"]
        self.queue.arguments["x-delivery-limit"] = 5
        self.broker.publish("q", [b"%d" % i for i in range(messages)])
        self.bad = bad
        self.given = {"queue": "q", "onBatchFailure": "release", "readerId": "r", **options}
        self.offsets: list[str] = []
        self.committed = 0
        self.rows: list[int] = []
        self.calls_left = 1 << 30
        self.runs = 0

    def driver(self) -> ClaimDriver:
        options = parse_options(self.given, "read")
        return ClaimDriver(
            FakeClient(self.call),
            options,
            Surroundings(lambda: 0, lambda _: None, lambda: "r"),
        )

    def call(self, name: str, *args: object) -> object:
        if self.calls_left <= 0:
            raise Died
        self.calls_left -= 1
        return getattr(self.broker, name)(*args)

    def run(self, dies_after: int = 1 << 30) -> bool:
        """Run until nothing is ready, or it fails; return whether nothing was left."""
        self.runs += 1
        self.calls_left = dies_after
        driver = self.driver()
        try:
            at = driver.initial()
            if self.committed:
                at = self.stored(self.committed - 1)
            while True:
                if len(self.offsets) == self.committed:
                    end = driver.latest(at, 100)
                    if end == at and at.registered and self.offsets:
                        return True
                    self.offsets.append(text(end))
                end = self.stored(self.committed)
                got = [self.body(m) for s in driver.plan(at, end) for m in self.claim(s.number)]
                if self.bad & set(got):
                    return False
                self.rows += got
                self.committed += 1
                at = end
        except Died:
            return False

    def stored(self, batch: int) -> Offset:
        return Offset.from_dict(json.loads(self.offsets[batch]))

    def claim(self, number: int) -> list[Message]:
        return self.queue.readers["r"].claims[number]

    def body(self, message: Message) -> int:
        return int(bytes(self.queue.blocks[message.index].body(message.ordinal)))

    def dead(self) -> set[int]:
        return {self.body(message) for message in self.queue.dead}


def test_one_message_that_fails_is_dead_lettered_and_the_others_are_read_once() -> None:
    query = Query(300, {137}, batchTriesMax="3")
    while not query.run():
        assert query.runs < 60
    assert query.dead() == {137}
    assert sorted(query.rows) == [i for i in range(300) if i != 137]
    assert query.runs == 3 * 6 + 1  # a limit of 5 allows 5 failures of three tries each


@pytest.mark.parametrize("bad", [{0}, {99}, {100}, {299}, {3, 4}, {10, 250}])
def test_wherever_the_bad_messages_are(bad: set[int]) -> None:
    query = Query(300, bad, batchTriesMax="1")
    while not query.run():
        assert query.runs < 60
    assert query.dead() == bad
    assert sorted(query.rows) == [i for i in range(300) if i not in bad]


@pytest.mark.parametrize("dies_after", range(3, 25))
def test_a_driver_that_ends_at_any_call_loses_nothing_and_doubles_nothing(dies_after: int) -> None:
    query = Query(120, {57}, batchTriesMax="2")
    query.run()
    while not query.run(1 << 30 if query.runs % 2 else dies_after):
        assert query.runs < 200
    assert query.rows and len(query.rows) == len(set(query.rows))
    assert set(query.rows) | query.dead() == set(range(120))
    assert 57 in query.dead()


def test_a_batch_is_the_same_until_its_tries_are_used_up() -> None:
    query = Query(40, {7}, batchTriesMax="3")
    for _ in range(3):
        assert not query.run()
        assert len(query.claim(1)) == 40
        assert [m.delivery_count for m in query.claim(1)] == [0] * 40
    query.run()
    assert 1 not in query.queue.readers["r"].claims
    assert len(query.claim(only(query.stored(query.committed)).number)) == 7  # 100 / 16, rounded up
    assert not query.dead()


def test_without_the_option_a_batch_is_retried_for_ever() -> None:
    query = Query(40, {7}, onBatchFailure="fail")
    for _ in range(12):
        assert not query.run()
    assert [m.delivery_count for m in query.claim(1)] == [0] * 40
    assert not any("starts" in each for each in query.offsets)


def test_an_older_copy_of_a_checkpoint_is_refused_as_before() -> None:
    query = Query(300, set(), batchTriesMax="1")
    assert query.run()
    assert query.committed == 4
    copy = query.driver()
    with pytest.raises(CheckpointBehindError):
        copy.plan(query.stored(1), query.stored(2))


def test_narrowing_ends_at_one_message_and_never_grows() -> None:
    assert [narrowed(200_000, n) for n in range(7)] == [200_000, 12_500, 782, 49, 4, 1, 1]
    for most in (1, 2, 15, 16, 17, 2**31 - 1):
        sizes = [narrowed(most, n) for n in range(12)]
        assert sizes == sorted(sizes, reverse=True)
        assert (sizes[0], sizes[-1]) == (most, 1)


def test_tries_are_the_runs_before_this_one() -> None:
    counted = Position("q", "r").after(ClaimInfo(1, 5, 50), 4)
    assert [tries_before(counted, starts) for starts in (3, 4, 5, 7)] == [0, 0, 1, 3]


def test_the_run_is_stored_only_when_it_counts() -> None:
    plain = standing("r", 1, (ClaimInfo(1, 5, 50),))
    assert "starts" not in plain.to_dict()["queues"]["q"]
    counted = plain.moved({"q": Position("q", "r").after(ClaimInfo(1, 5, 50), 3)}, {})
    assert counted.to_dict()["queues"]["q"]["starts"] == 3
    assert Offset.from_dict(counted.to_dict()) == counted


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"onBatchFailure": "drop"}, "onBatchFailure"),
        ({"onBatchFailure": "release", "batchTriesMax": "0"}, "batchTriesMax"),
        ({"batchTriesMax": "2"}, "needs onBatchFailure=release"),
        ({"onBatchFailure": "release", "settleWithBatch": "true"}, "settleWithBatch"),
        ({"isolatePoison": "true"}, "isolatePoison needs onBatchFailure"),
        ({"onBatchFailure": "release", "failuresInRowMax": "2"}, "needs onBatchFailure=reject or"),
        ({"onBatchFailure": "release", "dropRejected": "true"}, "needs onBatchFailure=reject"),
        ({"onBatchFailure": "reject", "failuresInRowMax": "0"}, "failuresInRowMax"),
    ],
)
def test_options_that_cannot_be(given: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        parse_options({"queue": "q", **given}, "read")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"onBatchFailure": "reject"}, "needs dropRejected=true, broker=amqp: AMQP does not"),
        (
            {"onBatchFailure": "reject", "dropRejected": "false", "isolatePoison": "true"},
            "needs dropRejected=true.*x-dead-letter-exchange",
        ),
        (
            {"onBatchFailure": "release", "ackMode": "spool"},
            "onBatchFailure=release needs ackMode=commit.*acknowledged before its batch has failed",
        ),
        *(
            ({"onBatchFailure": "release", "startingOffset": "7", name: text}, "is for queues: a")
            for name, text in (("batchTriesMax", "2"), ("isolatePoison", "true"))
        ),
        ({"queues": "a,b", "queue": "", "onBatchFailure": "release"}, "needs the option queue"),
    ],
)
def test_an_amqp_broker_refuses_what_it_cannot_do_and_says_why(
    given: dict[str, str], said: str
) -> None:
    found = {"queue": "q", "broker": "amqp", "spoolLocation": "/s", **given}
    if found.get("startingOffset"):
        del found["spoolLocation"]
    if not found["queue"]:
        del found["queue"]
    with pytest.raises(OptionError, match=said):
        parse_options(found, "read")


def test_an_amqp_broker_takes_the_others() -> None:
    given = {"queue": "q", "broker": "amqp", "spoolLocation": "/s", "batchTriesMax": "2"}
    for more in (
        {"onBatchFailure": "release"},
        {"onBatchFailure": "reject", "dropRejected": "true"},
    ):
        found = parse_options({**given, **more, "isolatePoison": "true"}, "read")
        assert found.isolate_poison and found.batch_tries_max == 2


def test_rejecting_needs_a_dead_letter_exchange_or_a_word_that_it_is_meant() -> None:
    query = Query(10, set(), onBatchFailure="reject")
    with pytest.raises(OptionError, match="no dead letter exchange and would drop"):
        query.run()
    assert query.queue.readers == {}, "a query that is refused fences nobody"
    query.given["dropRejected"] = "true"
    assert query.run()
    del query.given["dropRejected"]
    query.queue.arguments["x-dead-letter-exchange"] = ""  # the default exchange is one
    assert query.run()


def test_a_policy_may_give_the_dead_letter_exchange() -> None:
    queue = quorum_queue("q", effective_policy_definition={"dead-letter-exchange": "dlx"})
    assert dead_letters(queue) and not dead_letters(quorum_queue("q"))


def test_several_queues_are_refused() -> None:
    with pytest.raises(OptionError, match="needs the option queue"):
        parse_options({"queues": "a,b", "onBatchFailure": "release"}, "read")
