"""`Admin` has a call for every request of the administration."""

from __future__ import annotations

from pathlib import Path

import warren.admin
from warren_wire.admin.resources import REQUESTS

ELSEWHERE = {
    # of drivers: warren.claims, warren.stages, warren.views, Connection.renew_token
    *("RegisterReaderRequest", "OpenClaimRequest", "RenewClaimsRequest", "GiveUpRequest"),
    *("DrawEpochRequest", "PublishBatchRequest", "DropBatchRequest", "ViewEdgesRequest"),
    "RenewTokenRequest",
    # of backups: warren.backups
    *("HoldGroupRequest", "ReadHeldRequest", "ReleaseHeldRequest"),
}


def test_every_request_has_a_call() -> None:
    """A request that is added is offered in Python, or named here with what makes it."""
    folder = Path(warren.admin.__file__).parent
    text = "".join(path.read_text() for path in (*folder.glob("*.py"), folder.parent / "queues.py"))
    statistics = {kind.__name__ for kind in REQUESTS if kind.__module__.endswith("statistics")}
    names = {kind.__name__ for kind in REQUESTS}
    assert {name for name in names if f".{name}" not in text and f"({name})" not in text} == (
        ELSEWHERE | statistics
    )
