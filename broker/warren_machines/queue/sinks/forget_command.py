"""The command by which an operator has a queue forget a sink."""

from __future__ import annotations

from warren_wire.queue_values.command_base import QueueCommand, Reply


class ForgetSink(QueueCommand, frozen=True, array_like=True, tag="forget_sink"):
    """Forget a sink's runs with their epochs, batches and stages. Reply: SinkForgotten.

    A later batch of such a run is that of a new run: whatever its number it is taken, and one that
    was published before is published again.

    run     only this one; "": all
    forced  drop what is staged; False: while anything is, Refused(sink_in_use), and nothing is
            changed
    """

    sink: str
    run: str = ""
    forced: bool = False


class SinkForgotten(Reply, frozen=True, array_like=True, tag="sink_forgotten"):
    """The number of runs forgotten, and of staged messages dropped with them."""

    runs: int
    messages_staged: int
