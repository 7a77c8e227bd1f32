"""Files of batches that were tried before: how often, and whether one was given up.

    <location>/<reader>/tries/<batch>.<n>.try             the n-th try after the first one begins
    <location>/<reader>/tries/<batch>.<n>.<way>.<first>   in that try the batch, with rows from
                                                          `first` on, was given up by its task

The first run of a batch writes none, so a query without failures has no such file. The second kind
counts only where no later try is noted:

1. Run 2 plans batch 7 with a task that gives it up; driver and task stand still.  2. Run 3 has
other options, notes its try, and plans batch 7 with its rows; they are written.  3. The task of run
2 continues, and says that batch 7 was given up. Its rows must not be read again.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, get_args

from pyspark_warren.amqp.spool.store import SpoolPlace
from warren_wire.queue_values.give_up_command import Way

TRIES: Final = "tries"
_TRY: Final = "try"
_KINDS: Final = "|".join((_TRY, *get_args(Way)))
_NAME: Final = re.compile(rf"(\d+-\d+)\.(\d+)\.({_KINDS})(?:\.(\d+))?")


class Tried(NamedTuple):
    """What is noted of a batch.

    again  how often it was tried after the first time
    way    how it was given up; None: it was not
    first  its first row, when it was given up
    """

    again: int = 0
    way: Way | None = None
    first: int = 0


NOT_TRIED: Final = Tried()


class Tries:
    """The tries of one reader's batches; used by Spark's driver."""

    def __init__(self, place: SpoolPlace, reader: str) -> None:
        self._place = place
        self._folder = _folder(place, reader)

    def of(self, batch: str) -> Tried:
        """Return what is noted of a batch."""
        found = self._found().get(batch, [])
        again = max((int(match[2]) for match in found if match[3] == _TRY), default=0)
        for match in found:
            if match[3] != _TRY and int(match[2]) == again:
                return Tried(again, match[3], int(match[4]))  # type: ignore[arg-type]
        return Tried(again)

    def note(self, batch: str, number: int) -> None:
        """Note that the batch is tried again, durable; a repeat changes nothing."""
        _write(self._place, self._folder, f"{batch}.{number}.{_TRY}")

    def keep_only(self, batch: str) -> None:
        """Remove what is noted of other batches, which are committed."""
        with self._place.named("removing notes of tries"):
            for other, files in self._found().items():
                for match in files if other != batch else ():
                    self._place.store.remove(f"{self._folder}/{match[0]}")

    def _found(self) -> dict[str, list[re.Match[str]]]:
        found: dict[str, list[re.Match[str]]] = {}
        with self._place.named("reading notes of tries"):
            names = self._place.store.sizes(self._folder)
        for match in filter(None, map(_NAME.fullmatch, sorted(names))):
            found.setdefault(match[1], []).append(match)
        return found


def given_up_file(batch: str, number: int, way: Way, first: int) -> str:
    """Return the name of the file by which the task of that try gives the batch up."""
    return f"{batch}.{number}.{way}.{first}"


def give_up(place: SpoolPlace, reader: str, name: str) -> None:
    """Write such a file, durable; used by a task, perhaps twice."""
    _write(place, _folder(place, reader), name)


def _folder(place: SpoolPlace, reader: str) -> str:
    return f"{place.reader_folder(reader)}/{TRIES}"


def _write(place: SpoolPlace, folder: str, name: str) -> None:
    with place.named(f"writing {name}"):
        place.store.make(folder)
        place.store.write(folder, name, lambda sink: None)
