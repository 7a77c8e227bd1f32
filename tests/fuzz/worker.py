"""One target under Atheris: `python -m tests.fuzz.worker MODULE TARGET [what libFuzzer takes]`.

Started by `run`, with the environment of `instruments.worker_environment`.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import random
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

from tests.fuzz.instruments import COMPILED, SANITIZED
from tests.fuzz.reshape import reshaped

PREFIX = "warren_wire.kernel.compiled."
PACKAGES = ["warren_wire", "warren_raft", "warren_machines", "warren_broker"]
TWINS = ["warren_wire.kernel"]
"""Not counted: its edges are those of the C code, which counts its own."""


class SanitizedKernel(importlib.abc.MetaPathFinder):
    """Loads the kernel that was built for the fuzzer in the place of the one beside the sources."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module of the compiled kernel is; None for others."""
        if not name.startswith(PREFIX):
            return None
        found = next(COMPILED.glob(f"{name[len(PREFIX) :]}.cpython*.so"))
        return importlib.util.spec_from_file_location(name, found)


def main(arguments: list[str]) -> None:
    """Play inputs until libFuzzer ends the process."""
    import atheris

    if os.environ.get(SANITIZED):
        sys.meta_path.insert(0, SanitizedKernel())
    with atheris.instrument_imports(include=PACKAGES, exclude=TWINS):
        module = importlib.import_module(arguments[0])  # alone: the others take time to load
    (target,) = (each for each in module.TARGETS if each.name == arguments[1])

    def changed(data: bytes, size_max: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.5:
            made = reshaped(chance, data, chance.choice(target.heads))
            if made is not None and len(made) <= size_max:
                return made
        found: bytes = atheris.Mutate(data, size_max)
        return found

    own = {"custom_mutator": changed} if target.heads else {}
    atheris.Setup([sys.argv[0], *arguments[2:]], target.play, **own)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
