"""Writing a partition to a broker that is no Warren, over the protocol that it speaks."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pyspark_warren.options.options import Options
from pyspark_warren.sink.kept import KeptConnection, linked
from pyspark_warren.sink.publish import Channel091, OpenChannel, Publishing
from pyspark_warren.sink.publish10 import Channel10
from pyspark_warren.sink.writer import Attempt, WrittenPart, encoded_batches
from warren_wire.links.uris import AMQP10


def write_published(
    options: Options, attempt: Attempt, rows: Iterator[pa.RecordBatch], doing: str
) -> WrittenPart:
    """Publish the rows of a partition; the broker has confirmed all of them on return.

    Rows without a message_id get one that is the same whenever these rows run again in this order.
    raises  NotRoutableError, PublishError (rejected, too large), BrokerRefusedError,
            BrokerUnavailableError (also: no confirm in confirmTimeout), SchemaError, SameQueueError
    """
    publishing = Publishing(options, f"{doing}, partition {attempt.partition}", _opener(options))
    count = 0
    try:
        for encoded in encoded_batches(options, rows, attempt.id_prefix(), set()):
            publishing.add(encoded, count)
            count += len(encoded)
        publishing.finish()
    finally:
        publishing.close()
    return WrittenPart(attempt.driver, attempt.batch, attempt.partition, count, ())


def _opener(options: Options) -> OpenChannel:
    """Return what makes a channel to the kind of broker; it is opened later."""
    if options.broker == AMQP10:
        return lambda owner: Channel10(options, owner.doing, owner)
    return lambda owner: Channel091(linked(options, owner.doing, KeptConnection), owner)
