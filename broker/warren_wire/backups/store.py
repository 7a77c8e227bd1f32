"""Where backups are kept: a directory, or whatever `fsspec` reaches.

Files are written whole or not at all, and never changed. `fsspec` is imported only for a place with
`://` in its name, as `s3://bucket/warren`, `gs://…`, `abfs://…`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from warren_wire.whole_file import FRESH_PREFIX, write_whole


class StoreUnusable(ValueError):
    """A place that cannot be used; the text has the remedy."""


class BackupStore(Protocol):
    """A place for backups; names are relative to it, with `/`."""

    def read(self, name: str) -> bytes:
        """Return a file's content; raises FileNotFoundError."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file."""

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; there need be none."""

    def remove(self, name: str) -> None:
        """Remove a file."""


class DirectoryStore:
    """A directory, which is created by the first file that is written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def read(self, name: str) -> bytes:
        """See `BackupStore`."""
        return (self.path / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        """See `BackupStore`."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data)

    def names(self, folder: str) -> list[str]:
        """See `BackupStore`."""
        path = self.path / folder
        found = path.iterdir() if path.is_dir() else ()
        return [one.name for one in found if not one.name.startswith(FRESH_PREFIX)]

    def remove(self, name: str) -> None:
        """See `BackupStore`."""
        (self.path / name).unlink()


class ObjectStore:
    """A place that `fsspec` reaches; an object appears when it was written to its end."""

    def __init__(self, files: Any, root: str) -> None:
        self._files = files
        self._root = root.rstrip("/")

    def __str__(self) -> str:
        return str(self._files.unstrip_protocol(self._root))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def read(self, name: str) -> bytes:
        """See `BackupStore`."""
        return bytes(self._files.cat_file(self._path(name)))

    def write(self, name: str, data: bytes) -> None:
        """See `BackupStore`."""
        path = self._path(name)
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        self._files.pipe_file(path, data)

    def names(self, folder: str) -> list[str]:
        """See `BackupStore`."""
        self._files.invalidate_cache()
        try:
            found = self._files.ls(self._path(folder), detail=False)
        except FileNotFoundError:
            return []
        return [str(one).rstrip("/").rpartition("/")[2] for one in found]

    def remove(self, name: str) -> None:
        """See `BackupStore`."""
        self._files.rm_file(self._path(name))


def store_of(where: str) -> DirectoryStore | ObjectStore:
    """Return the place of that name; raises StoreUnusable."""
    if "://" not in where:
        return DirectoryStore(Path(where))
    try:
        import fsspec
    except ImportError as error:
        raise StoreUnusable(
            f"{where}: a place with :// needs fsspec: pip install 'warrenmq[backup]', and the "
            "package for that store (s3fs, gcsfs, adlfs)"
        ) from error
    try:
        files, root = fsspec.core.url_to_fs(where)
    except (ImportError, ValueError) as error:
        raise StoreUnusable(f"{where}: {error}") from error
    return ObjectStore(files, root)
