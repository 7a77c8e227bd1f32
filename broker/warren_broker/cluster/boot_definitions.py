"""Definitions that are loaded when the cluster starts, from a file that every node has.

The cluster loads the file once: the digest of what was loaded last is part of the definitions.
1. Three nodes start with the same file.  2. Each submits the import.  3. The first one that is
applied is carried out and keeps the digest; for the others there is nothing left to do.
A new cluster gets its vhosts and users from the file alone, as in RabbitMQ.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warren_broker import errors
from warren_broker.cluster.definitions import Definitions
from warren_broker.cluster.importing import DefinitionImports
from warren_broker.definition_files.document import parse

log = logging.getLogger(__name__)
NOTES_LOGGED_MAX = 100


class DefinitionsUnusable(Exception):
    """The file cannot be read or imported: as in RabbitMQ, the node does not start."""


class BootDefinitions:
    """The file that this node loads before it is ready.

    skip_if_unchanged  not when it is the one that the cluster has loaded last
    """

    def __init__(
        self,
        definitions: Definitions,
        imports: DefinitionImports,
        path: Path,
        skip_if_unchanged: bool,
    ) -> None:
        self._definitions = definitions
        self._imports = imports
        self._path = path
        self._skip_if_unchanged = skip_if_unchanged
        self._data = b""

    def read(self) -> None:
        """Read the file and check its form; raises DefinitionsUnusable."""
        try:
            self._data = self._path.read_bytes()
            parse(self._data)
        except OSError as error:
            raise DefinitionsUnusable(
                f"load_definitions={self._path}: {error.strerror}; give an existing file, or "
                "leave it out"
            ) from error
        except errors.Refusal as refusal:
            raise self._unusable(refusal) from None

    def _unusable(self, refusal: errors.Refusal) -> DefinitionsUnusable:
        return DefinitionsUnusable(f"load_definitions={self._path}: {refusal.detail}")

    def load(self, done: Callable[[], None]) -> None:
        """Import the file, unless the cluster has, and call back; raises DefinitionsUnusable."""
        source = hashlib.sha256(self._data).hexdigest() if self._skip_if_unchanged else ""
        state = self._definitions.state
        if source and state.loaded == source:
            log.info("definitions of %s: unchanged, not loaded again", self._path)
            done()
            return
        try:
            checked = self._imports.check(self._data)
        except errors.Refusal as refusal:
            raise self._unusable(refusal) from None

        def replied(reply: Any) -> None:
            if isinstance(reply, errors.Refusal):
                raise self._unusable(reply)
            report = checked.report
            log.info("loaded definitions of %s: %s", self._path, report.summary())
            for one in report.not_honoured[:NOTES_LOGGED_MAX]:
                log.warning("definitions: %s %s: %s", one.object, one.key, one.reason)
            done()

        self._imports.submit(checked, replied, source, first=not state.bootstrapped, forever=True)
