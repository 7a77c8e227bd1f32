"""The error of a driver that another one has taken over from."""

from __future__ import annotations

from pyspark_warren.errors import FencedError
from pyspark_warren.offset import Offset
from warren import errors as client_errors


class Fencing:
    """A context manager that converts the client's Fenced to the connector's."""

    def __init__(self, offset: Offset) -> None:
        self._offset = offset

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, client_errors.Fenced):
            raise FencedError(
                f"another driver has taken over reader {self._offset.reader!r} of queue "
                f"{self._offset.queue!r}: the same checkpoint or readerId is in use twice; stop "
                "one of the queries, or give each its own checkpoint and readerId"
            ) from error
