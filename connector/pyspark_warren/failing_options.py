"""Options of a stream about micro-batches that fail again and again; see option_table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from pyspark_warren.errors import OptionError
from pyspark_warren.option_spec import Spec
from pyspark_warren.option_values import parse_bool, parse_count, word_of

FAIL: Final = "fail"
RELEASE: Final = "release"
REJECT: Final = "reject"

FAILING: Final[tuple[Spec, ...]] = (
    Spec(
        "onBatchFailure",
        "on_batch_failure",
        word_of(FAIL, RELEASE, REJECT),
        FAIL,
        "what to do with a micro-batch that fails at each start of the query: fail: try it again; "
        "release: after batchTriesMax tries give its messages back, as failed deliveries; reject: "
        "dead-letter them then",
        "read",
        how="stream",
    ),
    Spec(
        "batchTriesMax",
        "batch_tries_max",
        parse_count,
        3,
        "onBatchFailure=release or reject: how often a micro-batch is tried",
        "read",
        1,
        1_000,
        "stream",
    ),
    Spec(
        "isolatePoison",
        "isolate_poison",
        parse_bool,
        False,
        "true: a micro-batch that fails is read again in halves, until the messages at fault are "
        "alone; onBatchFailure concerns only these, the others pass",
        "read",
        how="stream",
    ),
    Spec(
        "failuresInRowMax",
        "failures_in_row_max",
        parse_count,
        10,
        "so many messages alone (isolatePoison), or rejected micro-batches, may fail one after "
        "another while none passes; then nothing more is given up: the fault is elsewhere",
        "read",
        1,
        1_000_000,
        "stream",
    ),
    Spec(
        "dropRejected",
        "drop_rejected",
        parse_bool,
        False,
        "true: onBatchFailure=reject also on a queue without a dead letter exchange, which drops "
        "what is rejected; with broker=amqp the connector cannot see whether there is one",
        "read",
        how="stream",
    ),
)


class FailingValues(Protocol):
    """The options that `refuse_failing` looks at; see `options.Options`."""

    @property
    def given(self) -> tuple[str, ...]:
        """Names that were given, in lower case."""

    @property
    def queue(self) -> str:
        """The queue."""

    @property
    def on_batch_failure(self) -> str:
        """FAIL, RELEASE or REJECT."""

    @property
    def drop_rejected(self) -> bool:
        """Whether the queue may drop what is rejected."""

    @property
    def ack_mode(self) -> str:
        """When messages are acknowledged."""

    @property
    def prefetch(self) -> int:
        """Most unacknowledged messages of one receiver."""

    @property
    def receivers(self) -> int:
        """How many there are."""

    @property
    def starting_offset(self) -> object | None:
        """Given for a stream; None: a queue."""


def refuse_failing(options: FailingValues, told: str) -> None:
    """Raise OptionError, with the reason, for what an AMQP broker does not offer."""
    way = options.on_batch_failure
    if options.starting_offset is not None:
        for spec in FAILING:
            if spec.name.lower() in options.given:
                raise OptionError(
                    f"option {spec.name} is for queues: a stream (startingOffset) keeps its "
                    "messages, and takes none back; leave it out"
                )
    if way == FAIL:
        return
    if options.ack_mode != "commit":
        raise OptionError(
            f"option onBatchFailure={way} needs ackMode=commit, {told}: with ackMode="
            f"{options.ack_mode} a message is acknowledged before its batch has failed, and the "
            "broker can neither dead-letter it nor take it back"
        )
    if way == REJECT and not options.drop_rejected:
        raise OptionError(
            f"option onBatchFailure=reject needs dropRejected=true, {told}: AMQP 0.9.1 does not "
            f"tell whether queue {options.queue!r} has a dead letter exchange, and without one the "
            "broker drops what is rejected. See that it has one (x-dead-letter-exchange, or "
            "dead-letter-exchange of a policy), then set dropRejected=true"
        )


def check_room(options: FailingValues, waiting: int) -> None:
    """Raise OptionError when messages that wait, unacknowledged, keep all others from coming.

    1. A message fails alone, and waits until a batch passes behind it.  2. The broker delivers no
    more than the prefetch. When as many wait, nothing comes that could pass: the query would stand
    still, and no error would say why.
    """
    room = options.prefetch * options.receivers
    if waiting >= room:
        raise OptionError(
            f"option prefetch={options.prefetch} (receivers={options.receivers}): {waiting} "
            "messages that failed alone wait until another one passes (isolatePoison), and the "
            f"broker delivers no other beside them; give a prefetch above {waiting}"
        )


def check_failing(values: Mapping[str, Any], given: Mapping[str, str]) -> None:
    """Refuse options that need others, or exclude them; raises OptionError."""
    names = {name.lower() for name in given}
    way, isolates = values["on_batch_failure"], values["isolate_poison"]
    if way == FAIL:
        for spelled in ("batchTriesMax", "isolatePoison", "failuresInRowMax", "dropRejected"):
            if spelled.lower() in names:
                raise OptionError(
                    f"option {spelled} needs onBatchFailure=release or onBatchFailure=reject: with "
                    "onBatchFailure=fail a batch is tried at each start of the query"
                )
        return
    if "failuresinrowmax" in names and way == RELEASE and not isolates:
        raise OptionError(
            "option failuresInRowMax needs onBatchFailure=reject or isolatePoison=true: a batch "
            "that is released whole stays in the queue"
        )
    if "droprejected" in names and way != REJECT:
        raise OptionError("option dropRejected needs onBatchFailure=reject")
    if not values["queue"]:
        raise OptionError(
            f"option onBatchFailure={way} needs the option queue: which of several queues made a "
            "batch fail is not known"
        )
    if values["settle_with_batch"] and way == RELEASE and not isolates:
        raise OptionError(
            "option onBatchFailure=release cannot be given with settleWithBatch=true: a claim that "
            "a published batch may settle is not given back. Add isolatePoison=true, or use "
            "onBatchFailure=reject: they ask whether the batch was published"
        )
