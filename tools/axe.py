"""Fetch axe-core, which a test asks whether all users can use the management UI, from npm."""

from __future__ import annotations

from typing import Final

from tools import npm
from tools.environment import ROOT

VERSION: Final = "4.14.1"
PLACE: Final = ROOT / ".warren" / "axe"
SCRIPT: Final = PLACE / "axe.min.js"
DIGESTS: Final = {
    "axe.min.js": "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c",
}
"""File of the package → its SHA-256. It is not passed on, so its licence (MPL-2.0) asks nothing."""


def ensure() -> bool:
    """Fetch the script unless it is there; return whether it is, and say why not."""
    return npm.ensure("axe-core", VERSION, DIGESTS, PLACE)
