"""What every test of the cluster needs."""

from __future__ import annotations

import pytest

from warren_machines.metadata import passwords


@pytest.fixture(autouse=True)
def no_password_hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not hash passwords: it is slow on purpose, and no test here is about it."""
    monkeypatch.setattr(passwords, "hash_password", lambda password, salt: "hash")
