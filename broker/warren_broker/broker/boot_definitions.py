"""Definitions that are loaded when the cluster starts, from a file or directory of every node.

A directory's files are one import, in the order of their names: all of it is carried out, or none.
The cluster loads what is there once: the digest of what was loaded last is part of the definitions.
1. Three nodes start with the same file.  2. Each submits the import.  3. The first one that is
applied is carried out and keeps the digest; for the others there is nothing left to do.
A new cluster gets its vhosts and users from the file alone, as in RabbitMQ.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from warren_broker.broker.importing import DefinitionImports
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.link_logins import BY_OPERATOR
from warren_machines.definition_files.document import Document, joined, parse
from warren_machines.steps import whole
from warren_wire import errors

log = logging.getLogger(__name__)
NOTES_LOGGED_MAX = 100


class DefinitionsUnusable(Exception):
    """The file cannot be read or imported: as in RabbitMQ, the node does not start."""


def read_definitions(path: Path) -> tuple[Document, str]:
    """Return what a file or a directory's files hold, and their digest.

    raises  DefinitionsUnusable
    """
    digest, documents, where = hashlib.sha256(), [], path
    try:
        files = _files(path)
        for where in files:
            data = where.read_bytes()
            documents.append(parse(data))
            # One file's digest is that of its bytes, as it always was.
            digest.update(data if len(files) == 1 else hashlib.sha256(data).digest())
        where = path
        return joined(documents), digest.hexdigest()
    except OSError as error:
        raise DefinitionsUnusable(
            f"load_definitions={where}: {error.strerror}; give an existing file or directory, "
            "or leave it out"
        ) from error
    except errors.Refusal as refusal:
        raise DefinitionsUnusable(f"load_definitions={where}: {refusal.detail}") from None


@dataclass(eq=False, repr=False)
class BootDefinitions:
    """The file that this node loads before it is ready, or the files of a directory.

    skip_if_unchanged  not when it is the one that the cluster has loaded last
    """

    _definitions: Definitions
    _imports: DefinitionImports
    _path: Path
    _skip_if_unchanged: bool
    _document: Document = field(default_factory=Document)
    _digest: str = ""

    def read(self) -> None:
        """Read the files and check their form; raises DefinitionsUnusable."""
        self._document, self._digest = read_definitions(self._path)

    def _unusable(self, refusal: errors.Refusal) -> DefinitionsUnusable:
        return DefinitionsUnusable(f"load_definitions={self._path}: {refusal.detail}")

    def load(self, done: Callable[[], None]) -> None:
        """Import the file, unless the cluster has, and call back; raises DefinitionsUnusable."""
        source = self._digest if self._skip_if_unchanged else ""
        state = self._definitions.state
        if source and state.loaded == source:
            log.info("definitions of %s: unchanged, not loaded again", self._path)
            done()
            return
        try:
            checked = whole(self._imports.check(self._document, importer=BY_OPERATOR))
        except errors.Refusal as refusal:
            raise self._unusable(refusal) from None

        def replied(reply: object) -> None:
            if isinstance(reply, errors.Refusal):
                raise self._unusable(reply)
            report = checked.report
            log.info("loaded definitions of %s: %s", self._path, report.summary())
            for one in report.not_honoured[:NOTES_LOGGED_MAX]:
                log.warning("definitions: %s %s: %s", one.object, one.key, one.reason)
            done()

        self._imports.submit(checked, replied, source, first=not state.bootstrapped, forever=True)


def _files(path: Path) -> list[Path]:
    """Return the file, or the files of the directory by their names; raises DefinitionsUnusable.

    Names that begin with a dot are left out: editors write them, and Kubernetes for its own use.
    """
    if not path.is_dir():
        return [path]
    files = sorted(one for one in path.iterdir() if not one.name.startswith("."))
    for one in files:
        if one.is_dir():
            raise DefinitionsUnusable(
                f"load_definitions={path}: {one.name!r} is a directory; put its files into {path}"
            )
    if not files:
        raise DefinitionsUnusable(f"load_definitions={path}: the directory has no file")
    return files
