"""A local cluster for tests and notebooks: broker processes on loopback."""

from __future__ import annotations
