"""Mutants that no test can notice, each with the reason."""

from __future__ import annotations

EXPLAINED: dict[tuple[str, str, str], str] = {}
"""(file, operator, the line without its indentation) → why the mutant behaves as the original."""
