"""Options of a stream about micro-batches that fail again and again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark_warren.amqp_options import AmqpSourceOptions
from pyspark_warren.errors import OptionError
from pyspark_warren.option_spec import AS_STREAM, READ, Rule, options_of, specs_of
from pyspark_warren.option_values import count, parse_bool, word_of

FAIL: Final = "fail"
RELEASE: Final = "release"
REJECT: Final = "reject"
_stream = options_of(READ, AS_STREAM)
_GIVES_UP: Final = (
    Rule(
        lambda o: o.on_batch_failure != FAIL,
        "needs onBatchFailure=release or onBatchFailure=reject: with onBatchFailure=fail a batch "
        "is tried at each start of the query",
    ),
)


@dataclass(frozen=True, kw_only=True)
class FailingOptions(AmqpSourceOptions):
    """See the module."""

    on_batch_failure: str = _stream(
        "onBatchFailure",
        word_of(FAIL, RELEASE, REJECT),
        FAIL,
        "what to do with a micro-batch that fails at each start of the query: fail: try it again; "
        "release: after batchTriesMax tries give its messages back, as failed deliveries; reject: "
        "dead-letter them then",
        requires=(
            Rule(
                lambda o: o.queue or o.on_batch_failure == FAIL,
                "={o.on_batch_failure} needs the option queue: which of several queues made a "
                "batch fail is not known",
            ),
        ),
        excludes=(
            Rule(
                lambda o: o.settle_with_batch and o.releases_whole,
                "=release cannot be given with settleWithBatch=true: a claim that a published "
                "batch may settle is not given back. Add isolatePoison=true, or use "
                "onBatchFailure=reject: they ask whether the batch was published",
            ),
        ),
    )
    batch_tries_max: int = _stream(
        "batchTriesMax",
        count(1, 1_000),
        3,
        "onBatchFailure=release or reject: how often a micro-batch is tried",
        requires=_GIVES_UP,
    )
    isolate_poison: bool = _stream(
        "isolatePoison",
        parse_bool,
        False,
        "true: a micro-batch that fails is read again in halves, until the messages at fault are "
        "alone; onBatchFailure concerns only these, the others pass",
        requires=_GIVES_UP,
    )
    failures_in_row_max: int = _stream(
        "failuresInRowMax",
        count(1, 1_000_000),
        10,
        "so many messages alone (isolatePoison), or rejected micro-batches, may fail one after "
        "another while none passes; then nothing more is given up: the fault is elsewhere",
        requires=_GIVES_UP,
        excludes=(
            Rule(
                lambda o: o.releases_whole,
                "needs onBatchFailure=reject or isolatePoison=true: a batch that is released "
                "whole stays in the queue",
            ),
        ),
    )
    drop_rejected: bool = _stream(
        "dropRejected",
        parse_bool,
        False,
        "true: onBatchFailure=reject also on a queue without a dead letter exchange, which drops "
        "what is rejected; with broker=amqp the connector cannot see whether there is one",
        requires=(
            *_GIVES_UP,
            Rule(lambda o: o.on_batch_failure == REJECT, "needs onBatchFailure=reject"),
        ),
    )

    @property
    def releases_whole(self) -> bool:
        """Return whether a batch that failed is given back as a whole."""
        return self.on_batch_failure == RELEASE and not self.isolate_poison


def refuse_failing(options: FailingOptions, told: str) -> None:
    """Raise OptionError, with the reason, for what an AMQP broker does not offer."""
    way = options.on_batch_failure
    if options.starting_offset is not None:
        for spec in specs_of(FailingOptions):
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


def check_room(options: FailingOptions, waiting: int) -> None:
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
