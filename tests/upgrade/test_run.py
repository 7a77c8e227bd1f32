"""`build.py upgrade` as a test."""

from __future__ import annotations

import pytest

from upgrade import run

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.long]


def test_a_cluster_is_upgraded_under_load() -> None:
    assert run.main() == 0
