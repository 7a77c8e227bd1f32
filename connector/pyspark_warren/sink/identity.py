"""What a streaming query's sink publishes under, noted in the query's checkpoint.

A batch that was published and is not in Spark's commit log runs again at the query's restart. It is
recognised by what it was published under. With another sink, run or target it would be another
batch, and its rows were published twice:

1. Batch 7 is published in queue a.  2. The driver ends before the commit log.  3. The query is
started again with routingKey=b: queue b knows no batch 7, and publishes it.

Spark tells a sink neither what it was before nor where its checkpoint stands. So the driver writes
a file beside Spark's logs before anything of a batch is published, and reads it before the next one
is. That needs a checkpoint that is a directory of the driver. With another one, the target queue
knows the query's id, where it is the run: a query has one streaming sink, so the same batch of the
same run under another sink's name is this one.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from pyspark_warren.errors import SinkChangedError
from pyspark_warren.options.options import Options
from pyspark_warren.sink.checkpoint import checkpoint_directory
from warren.errors import AccessRefused
from warren.stages import SinkDriver

log = logging.getLogger("pyspark_warren")

IDENTITY_FILE: Final = "warren-sink.json"
"""Its name in the checkpoint."""
_LOOKED_MAX: Final = 1_000
_looked: dict[tuple[str, str], str] = {}
"""By queue and run the sink that this process has looked for other ones of, last."""
_OFFSETS: Final = "offsets"
"""Where Spark logs the offsets of each batch, before it runs."""
_ID_FILE: Final = "metadata"
"""Where Spark keeps the query's id, before its first batch."""


def note_identity(options: Options, batch: int) -> None:
    """Note what the batch is published under, before it is.

    Nothing is noted when the checkpoint is not a directory that the driver can write.

    raises  SinkChangedError: the batch, or a later one, may have been published under another
            identity; with onSinkChange=continue this is logged
    """
    directory = _checkpoint(options)
    if directory is None:
        return
    query = _query(directory)
    found, identity = _noted(directory), _identity(options, query)
    if found is not None and found["batch"] >= batch and not _begun_again(directory, found, query):
        changed = _changed(found["identity"], identity)
        if not changed:
            return  # and a driver that stood still does not set the number back
        _refuse(options, batch, changed)
    noted = {
        "batch": batch,
        "identity": identity,
        "query": query,
        "begun": _begun(directory, batch),
    }
    at = directory / IDENTITY_FILE
    new = directory / f".{IDENTITY_FILE}.{os.getpid()}"
    try:
        new.write_text(json.dumps(noted, sort_keys=True), encoding="utf-8")
        new.replace(at)
    except OSError as wrong:
        log.warning("%s is not written, so changed sink options are not detected: %s", at, wrong)
        with suppress(OSError):
            new.unlink()


def refuse_other_sinks(
    options: Options,
    driver: SinkDriver,
    batch: int,
    queues: Iterable[str],
    look: Callable[[str, str], Mapping[str, int]],
) -> None:
    """Refuse a batch that its query has published in one of the queues under another sinkId.

    Only where the checkpoint cannot say it, and once for a sink of a run until this process has
    another one of it: what this driver publishes itself has this name.

    look    the last batch of each sink of a queue that has a run of that name
    raises  SinkChangedError; with onSinkChange=continue this is logged
    """
    if options.run_id or _checkpoint(options) is not None:
        return
    for queue in sorted(queues):
        if _looked.get((queue, driver.run)) == driver.sink:
            continue
        try:
            found = look(queue, driver.run)
        except AccessRefused as refused:  # the right to write does not include it
            log.info("whether the query had another sinkId is not known: %s", refused)
            found = {}
        for sink, last in found.items():
            if sink != driver.sink and last >= batch:
                _refuse(options, batch, _changed({"sinkId": sink}, {"sinkId": driver.sink}))
        if len(_looked) >= _LOOKED_MAX:
            _looked.clear()
        _looked[queue, driver.run] = driver.sink


def last_batch(options: Options) -> int | None:
    """Return the number of the last batch that Spark has begun; None: it cannot be read here."""
    directory = _checkpoint(options)
    if directory is None:
        return None
    names = [each.name for each in (directory / _OFFSETS).iterdir()]
    return max((int(name) for name in names if name.isdecimal()), default=None)


def _checkpoint(options: Options) -> Path | None:
    # A path without a scheme may be one of Spark's own file system, which is no directory here.
    directory = checkpoint_directory(options.checkpoint)
    return directory if directory is not None and (directory / _OFFSETS).is_dir() else None


def _identity(options: Options, query: str | None) -> dict[str, Any]:
    """Return what says which batch it is, and where it goes, by the options' names.

    Not the hosts: nodes are added and removed, and are one broker. A default that is given has the
    value that it has where it is left out.

    query   sinkId and runId where they are left out; None: not known, and they are not noted
    """
    exchange = options.exchange
    if exchange is None and options.routing_key is not None:
        exchange = ""
    identity = {
        "broker": options.broker,
        "vhost": options.vhost,
        "exchange": exchange,
        "routingKey": options.routing_key,
        "atomicBatch": options.atomic_batch,
    }
    names = {"sinkId": options.sink_id or query, "runId": options.run_id or query}
    return identity | {name: value for name, value in names.items() if value is not None}


def _query(directory: Path) -> str | None:
    """Return the query's id; None: it cannot be read."""
    try:
        return str(json.loads((directory / _ID_FILE).read_text(encoding="utf-8"))["id"])
    except (OSError, ValueError, KeyError, TypeError) as wrong:
        log.warning("%s has no query's id: %s", directory / _ID_FILE, wrong)
        return None


def _begun(directory: Path, batch: int) -> str:
    """Return a digest of what Spark has logged of a batch, the time included; "": nothing."""
    try:
        return hashlib.sha256((directory / _OFFSETS / str(batch)).read_bytes()).hexdigest()
    except OSError:
        return ""


def _begun_again(directory: Path, found: dict[str, Any], query: str | None) -> bool:
    """Return whether the note is of an earlier query, of which Spark's logs are gone.

    A query that has its logs, and lost its id alone, runs that batch again.
    """
    if found["query"] in (None, query):
        return False
    return bool(_begun(directory, found["batch"]) != found["begun"])


def _noted(directory: Path) -> dict[str, Any] | None:
    try:
        stored = json.loads((directory / IDENTITY_FILE).read_text(encoding="utf-8"))
        return {
            "batch": int(stored["batch"]),
            "identity": dict(stored["identity"]),
            "query": stored["query"],
            "begun": stored["begun"],
        }
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as wrong:
        log.warning("%s cannot be read, and is written again: %s", directory / IDENTITY_FILE, wrong)
        return None


def _changed(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what differs, as text; another release may note more, or less."""
    return [
        f"{name}={_shown(before[name])} (now {_shown(now[name])})"
        for name in now
        if name in before and before[name] != now[name]
    ]


def _refuse(options: Options, batch: int, changed: list[str]) -> None:
    of = f" with checkpoint {options.checkpoint!r}" if options.checkpoint else ""
    text = (
        f"batch {batch} of the query{of} may have been published with other "
        f"options: {', '.join(changed)}. With these it is published a second time"
    )
    if options.on_sink_change == "fail":
        raise SinkChangedError(
            f"{text}. Start the query with the former options and trigger availableNow, and change "
            "them when it has run to its end; or set onSinkChange=continue"
        )
    log.warning("%s (onSinkChange=continue)", text)


def _shown(value: Any) -> str:
    return "none" if value is None else str(value) or '""'
