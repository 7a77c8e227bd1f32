"""Fetch uPlot, which draws the charts of the management UI, from the npm registry.

Its files are laid beside the UI's, where the wheel takes them from. Without them the UI has no
charts, and everything else.
"""

from __future__ import annotations

from typing import Final

from tools import npm
from tools.environment import ROOT

VERSION: Final = "1.6.32"
PLACE: Final = ROOT / "broker" / "warren_broker" / "http" / "uplot"
DIGESTS: Final = {
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "dist/uPlot.esm.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
    "dist/uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""File of the package → its SHA-256."""


def ensure() -> bool:
    """Fetch the files unless they are there; return whether they are, and say why not."""
    return npm.ensure("uplot", VERSION, DIGESTS, PLACE)
