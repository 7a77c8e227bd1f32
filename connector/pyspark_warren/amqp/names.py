"""What the operators of an AMQP 0.9.1 broker see of a query: names of connections and consumers.

A source's driver is not told which query it works for: there the name is the reader's, which is in
the checkpoint and the progress, and what the option queryName says. Tasks are told.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pyspark_warren.options import Options
from warren_wire.queue_values.describe_command import ReadBy

CLIENT: Final = "pyspark_warren"
_SHOWN_BYTES_MAX: Final = 255
_TAG_BYTES_MAX: Final = 128
_QUERY_NAME_BYTES_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class ClientName:
    """How a connection and its consumer are shown.

    connection  name of the connection
    tag         the consumer's; every delivery carries it, so it is short
    about       client properties beside the name: query, query_name, queue, reader, sink
    """

    connection: str = CLIENT
    tag: str = ""
    about: tuple[tuple[str, str], ...] = field(default=())

    def properties(self) -> dict[str, str]:
        """Return the client properties of connection.start-ok."""
        return {"connection_name": self.connection, "product": CLIENT, **dict(self.about)}


UNNAMED: Final = ClientName()


def of_receiver(options: Options, reader: str, index: int) -> ClientName:
    """Name one of a reader's consumers of a queue."""
    query = _cut(options.query_name, _QUERY_NAME_BYTES_MAX)
    return _named(
        f"receiver {index}",
        query,
        f"queue {options.queue}, reader {reader}",
        f"{query} {reader}.{index}".lstrip(),
        queue=options.queue,
        reader=reader,
    )


def of_look(options: Options) -> ClientName:
    """Name a driver's connection that asks whether a queue exists."""
    query = _cut(options.query_name, _QUERY_NAME_BYTES_MAX)
    return _named("driver", query, f"queue {options.queue}", queue=options.queue)


def of_stream(options: Options, task: ReadBy | None) -> ClientName:
    """Name a consumer of a stream: of a query's task, or of the driver, which looks for its end."""
    query, query_id = _query(options, task)
    part = f"query {query_id}" if query_id else "driver"
    tag = f"{query} {query_id or 'driver'}".lstrip()
    return _named(
        "stream", query, f"{options.queue}, {part}", tag, queue=options.queue, query=query_id
    )


def of_sink(options: Options, task: ReadBy | None) -> ClientName:
    """Name the connection of a task that publishes."""
    query, query_id = _query(options, task)
    parts = [f"query {query_id}"] if query_id else []
    parts += [f"sinkId {options.sink_id}"] if options.sink_id else []
    return _named("sink", query, ", ".join(parts), query=query_id, sink=options.sink_id)


def _query(options: Options, task: ReadBy | None) -> tuple[str, str]:
    """Return name and id of the query that a task belongs to, each "" where not known."""
    if task is None:
        return _cut(options.query_name, _QUERY_NAME_BYTES_MAX), ""
    return _cut(options.query_name or task.name, _QUERY_NAME_BYTES_MAX), task.query


def _named(what: str, name: str, more: str, tag: str = "", **about: str) -> ClientName:
    of_query = f" of {name}" if name else ""
    rest = f": {more}" if more else ""
    told = {**about, "query_name": name}
    return ClientName(
        _cut(f"{CLIENT} {what}{of_query}{rest}", _SHOWN_BYTES_MAX),
        _cut(tag, _TAG_BYTES_MAX),
        tuple(sorted((name, _cut(text, _SHOWN_BYTES_MAX)) for name, text in told.items() if text)),
    )


def _cut(text: str, most: int) -> str:
    """Return the beginning of a text that has at most that many bytes."""
    return text.encode()[:most].decode(errors="ignore")
