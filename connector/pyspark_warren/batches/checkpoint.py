"""A loop's checkpoint in its directory: the two logs, the query's id, and which loop owns it.

A loop takes a checkpoint over by writing its own name into it, and looks at that before each write
into a log: an older loop finds the name of the newer one, and ends. The files of the logs are made
once and never changed, so what two loops write in the same moment is decided by the first file.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa

from pyspark_warren.batches import log
from pyspark_warren.batches.log import (
    COMMIT_LOG,
    OFFSET_LOG,
    QUERY_FILE,
    STATE_FOLDER,
    Logged,
    Standing,
)
from pyspark_warren.errors import CheckpointDamagedError, CheckpointError, FencedError
from pyspark_warren.spool.store import open_store

OWNER: Final = "warren-owner.json"
"""Spark does not look at files that it does not know."""
PURGE_EVERY: Final = 20


class Checkpoint:
    """A checkpoint that this loop has taken over.

    query  the query's id

    Invariant: a file of a log is written by the owner alone, and never a second time.
    """

    def __init__(self, location: str, clock_s: Callable[[], float] = time.time) -> None:
        try:
            self._store, self._root, self._shown = open_store(location)
        except ValueError as wrong:
            raise CheckpointError(f"checkpoint {wrong}") from None
        self._clock_s = clock_s
        self._owner = uuid.uuid4().hex
        self._metadata: Mapping[str, Any] = {"batchWatermarkMs": 0, "conf": {}}
        with self._named("opening it"):
            self._own()
            self.query = self._identified()

    # -------------------------------------------------------------- the logs

    def standing(self) -> Standing:
        """Read where the logs stand; raises CheckpointError."""
        with self._named("reading it"):
            found = log.places(self._names(OFFSET_LOG), self._names(COMMIT_LOG))
            last = self._begun(found.begun)
            if last is None:
                return Standing()
            assert found.begun is not None
            self._metadata = last.metadata
            if found.done is not None:
                path = f"{self._root}/{COMMIT_LOG}/{found.done}"
                log.check_done(found.done, self._store.read(path) or b"")
            if found.begun == found.done:
                return Standing(found.begun + 1, last.end)
            before = self._begun(found.done)
            return Standing(found.begun, before.end if before else None, last.end)

    def begin(self, at: Standing, end: Mapping[str, Any]) -> Standing:
        """Note that the batch begins, and where it ends; return where the logs stand then.

        When another loop has noted it before this one took over, that holds.
        """
        metadata = {**self._metadata, "batchTimestampMs": int(self._clock_s() * 1000)}
        if self._create(OFFSET_LOG, at.number, log.write_begun(Logged(metadata, end))):
            return at.begun(end)
        return self.standing()

    def done(self, at: Standing) -> Standing:
        """Note that the batch is done; return where the logs stand then."""
        self._create(COMMIT_LOG, at.number, log.write_done())
        if at.number % PURGE_EVERY == 0:
            with self._named("removing old batches"):
                self._purge(at.number)
        return at.done()

    def check_owner(self) -> None:
        """Raise FencedError when a newer loop has taken the checkpoint over."""
        try:
            said = json.loads(self._store.read(f"{self._root}/{OWNER}") or b"")
            owner = said["owner"]
        except (ValueError, KeyError, TypeError):
            raise CheckpointDamagedError(
                f"file {OWNER} was removed or changed while the loop ran; start the loop again"
            ) from None
        if owner != self._owner:
            raise FencedError(
                f"checkpoint {self._shown}: a newer loop has taken it over (process "
                f"{said.get('process')} on {said.get('host')}, since {said.get('since')}); run one "
                "at a time"
            )

    # -------------------------------------------------------------- steps

    def _create(self, folder: str, number: int, data: bytes) -> bool:
        with self._named(f"writing {folder}/{number}"):
            self.check_owner()
            return self._store.create(f"{self._root}/{folder}", str(number), data)

    def _begun(self, number: int | None) -> Logged | None:
        if number is None:
            return None
        data = self._store.read(f"{self._root}/{OFFSET_LOG}/{number}")
        assert data is not None, number
        return log.read_begun(number, data)

    def _names(self, folder: str) -> list[str]:
        return list(self._store.sizes(f"{self._root}/{folder}"))

    def _purge(self, number: int) -> None:
        for folder in (OFFSET_LOG, COMMIT_LOG):
            for name in log.to_purge(self._names(folder), number):
                self._store.remove(f"{self._root}/{folder}/{name}")

    def _identified(self) -> str:
        """Return the query's id, which a new checkpoint gets."""
        path = f"{self._root}/{QUERY_FILE}"
        found = self._store.read(path)
        if found is None:
            if self._names(OFFSET_LOG):
                raise CheckpointDamagedError(
                    f"there is no file {QUERY_FILE}, which has the query's id, and there are "
                    f"batches in {OFFSET_LOG}; put it back from a copy, or use another checkpoint"
                )
            self._store.create(self._root, QUERY_FILE, log.write_metadata(str(uuid.uuid4())))
            found = self._store.read(path)
            assert found is not None, path
        if self._store.exists(f"{self._root}/{STATE_FOLDER}"):
            raise CheckpointError(
                "it is of a streaming query with a state, and a loop has none; go on with that "
                "query, or use another checkpoint"
            )
        return log.read_metadata(found)

    def _own(self) -> None:
        for folder in (OFFSET_LOG, COMMIT_LOG):
            self._store.make(f"{self._root}/{folder}")
        said = {
            "host": socket.gethostname(),
            "owner": self._owner,
            "process": os.getpid(),
            "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock_s())),
        }
        data = json.dumps(said, sort_keys=True).encode()
        self._store.write(self._root, OWNER, lambda sink: sink.write(data))

    @contextlib.contextmanager
    def _named(self, doing: str) -> Iterator[None]:
        """Name the checkpoint in what goes wrong."""
        try:
            yield
        except FencedError:
            raise
        except CheckpointError as wrong:
            raise type(wrong)(f"checkpoint {self._shown}: {wrong.text}") from None
        except (OSError, pa.ArrowException) as wrong:
            raise CheckpointError(
                f"checkpoint {self._shown}: {doing}: {wrong}; check that it is reachable and "
                "writable. The loop can be started again"
            ) from wrong
