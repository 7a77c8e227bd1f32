"""Where the spool's files are: a local directory, or any file system that pyarrow knows."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs as arrow_fs

from pyspark_warren.errors import SpoolError
from pyspark_warren.spool.layout import LANE, folder_of

Fill = Callable[[pa.NativeFile], None]
"""Writes a file's content into a stream."""


@dataclass(frozen=True)
class LocalStore:
    """A local directory, with what a crash of the machine needs: synced files, synced folders.

    Paths have `/` between folders.

    whole   a file appears with all its content, also when its writer is killed
    raises  OSError or pa.ArrowException from every method
    """

    whole: bool = True

    def make(self, folder: str) -> None:
        """Create a folder with those above it, durable."""
        made = []
        place = Path(folder)
        while not place.is_dir():
            made.append(place)
            place = place.parent
        for new in reversed(made):
            new.mkdir(exist_ok=True)
            _sync_folder(str(new.parent))

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the files of a folder with their sizes; none when there is no folder."""
        found = {}
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        if entry.is_file():
                            found[entry.name] = entry.stat().st_size
        except FileNotFoundError:
            return {}
        return found

    def write(self, folder: str, name: str, fill: Fill) -> None:
        """Write a file under another name, sync it, rename it, sync the folder."""
        temporary = f"{folder}/.{name}"
        with pa.OSFile(temporary, "wb") as sink:
            fill(sink)
        fd = os.open(temporary, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, f"{folder}/{name}")
        _sync_folder(folder)

    def create(self, folder: str, name: str, data: bytes) -> bool:
        """Write a file, as `write`, if there is none of that name; return whether there was none.

        Where the file system has no hard links, a file that another process writes in the same
        instant is replaced.
        """
        path = f"{folder}/{name}"
        made = f"{name}.{os.getpid()}.new"
        if self.exists(path):
            return False
        self.write(folder, made, lambda sink: sink.write(data))
        try:
            os.link(f"{folder}/{made}", path)
        except FileExistsError:
            return False
        except OSError:
            os.rename(f"{folder}/{made}", path)
        finally:
            self.remove(f"{folder}/{made}")
            _sync_folder(folder)
        return True

    def exists(self, path: str) -> bool:
        """Return whether there is a file or a folder."""
        return os.path.exists(path)

    def read(self, path: str) -> bytes | None:
        """Return a file's content; None: there is no file."""
        with contextlib.suppress(FileNotFoundError):
            return Path(path).read_bytes()
        return None

    def open(self, path: str) -> pa.NativeFile:
        """Map a file."""
        return pa.memory_map(path, "r")

    def remove(self, path: str) -> None:
        """Remove a file; one that is not there is no error."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


_RENAMES: Final = ("hdfs", "viewfs", "mock")
"""Types of file systems where a rename is atomic and a file grows while it is written."""
_APPEARS_WHOLE: Final = ("s3", "gcs")


@dataclass(frozen=True)
class ArrowStore:
    """A file system of pyarrow, as `LocalStore`. Object stores show a file when it is whole."""

    fs: arrow_fs.FileSystem

    @property
    def whole(self) -> bool:
        """Whether a killed writer leaves no part of a file."""
        return self.fs.type_name in _RENAMES + _APPEARS_WHOLE

    def make(self, folder: str) -> None:
        """Create a folder with those above it."""
        self.fs.create_dir(folder, recursive=True)

    def sizes(self, folder: str) -> dict[str, int]:
        """Return the files of a folder with their sizes."""
        found = self.fs.get_file_info(arrow_fs.FileSelector(folder, allow_not_found=True))
        return {info.base_name: info.size for info in found if info.is_file}

    def write(self, folder: str, name: str, fill: Fill) -> None:
        """Write a file; under another name first where it would be seen while it grows."""
        renames = self.fs.type_name in _RENAMES
        path = f"{folder}/.{name}" if renames else f"{folder}/{name}"
        with self.fs.open_output_stream(path, compression=None) as sink:
            fill(sink)
        if renames:
            self.fs.move(path, f"{folder}/{name}")

    def create(self, folder: str, name: str, data: bytes) -> bool:
        """Write a file if there is none of that name; return whether there was none.

        Arrow has no write that fails where there is a file: one that another process writes in the
        same instant may be replaced.
        """
        if self.exists(f"{folder}/{name}"):
            return False
        self.write(folder, name, lambda sink: sink.write(data))
        return True

    def exists(self, path: str) -> bool:
        """Return whether there is a file or a folder."""
        return bool(self.fs.get_file_info(path).type != arrow_fs.FileType.NotFound)

    def read(self, path: str) -> bytes | None:
        """Return a file's content; None: there is no file."""
        with contextlib.suppress(FileNotFoundError):
            with self.fs.open_input_stream(path, compression=None) as source:
                return bytes(source.read())
        return None

    def open(self, path: str) -> pa.NativeFile:
        """Open a file for reading at any place."""
        return self.fs.open_input_file(path)

    def remove(self, path: str) -> None:
        """Remove a file."""
        with contextlib.suppress(FileNotFoundError):
            self.fs.delete_file(path)


Store: TypeAlias = LocalStore | ArrowStore


@dataclass(frozen=True)
class SpoolPlace:
    """The directory of the option spoolLocation.

    root   the path in the store
    shown  the location as it may be printed: without user, password and query
    """

    store: Store
    root: str
    shown: str

    def reader_folder(self, reader: str) -> str:
        """Return the path of a reader's folder."""
        return f"{self.root}/{folder_of(reader)}"

    def lane_folder(self, reader: str) -> str:
        """Return the path of the folder of a reader's lane."""
        return f"{self.reader_folder(reader)}/{LANE}"

    @contextlib.contextmanager
    def named(self, doing: str) -> Iterator[None]:
        """Convert the file system's errors to SpoolError."""
        try:
            yield
        except (OSError, pa.ArrowException) as wrong:
            raise SpoolError(
                f"spool {self.shown}: {doing}: {wrong}; check that spoolLocation is reachable, "
                "writable and has room. Nothing that is not in the spool was acknowledged"
            ) from wrong
        except SpoolError as wrong:
            raise SpoolError(f"spool {self.shown}: {doing}: {wrong.args[0]}") from wrong


def open_place(location: str) -> SpoolPlace:
    """Open a spool's location, an absolute path or a URI; raises SpoolError."""
    try:
        return SpoolPlace(*open_store(location))
    except ValueError as wrong:
        raise SpoolError(f"spoolLocation {wrong}") from None


def open_store(location: str) -> tuple[Store, str, str]:
    """Open a directory, an absolute path or a URI.

    returns  the store, the path in it, and the location as it may be printed
    raises   ValueError with the location
    """
    if "://" not in location:
        if not os.path.isabs(location):
            raise ValueError(
                f"{location!r} is neither an absolute path nor a URI; give "
                "/path/to/it, or s3://bucket/path, hdfs://host/path, gs://bucket/path"
            )
        return LocalStore(), location.rstrip("/"), location
    parts = urlsplit(location)
    shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    try:
        found, path = arrow_fs.FileSystem.from_uri(location)
    except (OSError, ValueError, pa.ArrowException) as wrong:
        text = str(wrong).replace(location, shown)
        raise ValueError(f"{shown}: {text}") from None
    path = path.rstrip("/")
    if found.type_name == "local":
        return LocalStore(), path, shown
    return ArrowStore(found), path, shown
