"""`--follow`: each record once, the oldest first, whatever the nodes do; and settings alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from warren.cli import following, output
from warren.cli.following import AuditLook, Fresh, LogLook
from warren.cli.settings import alike
from warren.errors import AccessRefused, ConnectionLost
from warren_wire.admin.audit import AuditPage, AuditRecord, ListAuditRequest
from warren_wire.admin.logs import ListLogLinesRequest, LoggedLine, LogLines
from warren_wire.admin.node_facts import NodeSetting


def record(number: int, node: str = "a") -> AuditRecord:
    return AuditRecord(number, "t", node, "change", "ann", "HTTP", "peer")


class Audit:
    """Nodes with audit logs; those that are away are missing in an answer."""

    def __init__(self) -> None:
        self.kept: list[AuditRecord] = []
        self.away: set[str] = set()
        self.pages = 0

    def records(self, *, limit: int = 0, **asked: Any) -> Iterator[AuditRecord]:
        yield from self._found(asked.get("since", 0))[: limit or None]

    def _found(self, since: int) -> list[AuditRecord]:
        there = [one for one in self.kept if one.node not in self.away]
        there = [one for one in there if one.number >= since * 1_000_000]
        return sorted(there, key=lambda one: -one.number)

    def page(self, *, since: int, before: str, **asked: Any) -> AuditPage:
        self.pages += 1
        found = [one for one in self._found(since) if not before or one.number < int(before)]
        more = str(found[1].number) if len(found) > 2 else ""
        return AuditPage(tuple(found[:2]), more, tuple(sorted(self.away)))


def numbers(found: list[Any]) -> list[tuple[str, int]]:
    return [(one.node, one.number) for one in found]


def test_each_record_is_shown_once_and_late_ones_too() -> None:
    audit = Audit()
    admin: Any = SimpleNamespace(audit=audit)
    look = AuditLook(ListAuditRequest(), first=2)
    now = 10**15
    audit.kept = [record(now + n) for n in range(3)]
    assert numbers(look(admin)) == [("a", now + 1), ("a", now + 2)]
    assert look(admin) == []
    audit.away = {"b"}
    audit.kept += [record(now + n, "b") for n in (5, 6, 7)] + [record(now + 9)]
    assert numbers(look(admin)) == [("a", now + 9)]
    audit.away = set()
    assert numbers(look(admin)) == [("b", now + n) for n in (5, 6, 7)]
    assert look(admin) == [] and not look.left_out


def test_a_look_reads_a_bounded_number_of_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "FOLLOWED_PAGES_MAX", 3)
    audit = Audit()
    look = AuditLook(ListAuditRequest(), first=1)
    admin: Any = SimpleNamespace(audit=audit)
    audit.kept = [record(10**18)]
    look(admin)
    audit.kept += [record(10**18 + n) for n in range(1, 50)]
    assert len(look(admin)) == 6 and audit.pages == 3 and look.left_out
    assert look(admin) == [] and audit.pages == 6


def line(number: int, node: str = "a") -> LoggedLine:
    return LoggedLine(number, "t", node, "info", "x", "text", "text", {})


def test_lines_of_a_restarted_node_are_shown_once() -> None:
    asked: list[dict[str, Any]] = []
    kept = [line(1), line(2), line(3, "b")]

    def lines(**given: Any) -> LogLines:
        asked.append(given)
        return LogLines(tuple(kept[-given["count"] :]))

    admin: Any = SimpleNamespace(logs=SimpleNamespace(lines=lines))
    look = LogLook(ListLogLinesRequest(count=2, node="", level="info"))
    assert numbers(look(admin)) == [("a", 2), ("b", 3)]
    kept[:] = [line(3, "b"), line(9)]  # a has restarted: its earlier lines are gone
    assert numbers(look(admin)) == [("a", 9)] and look(admin) == []
    assert [one["count"] for one in asked] == [2, 1000, 1000] and asked[0]["level"] == "info"


def test_it_goes_on_when_a_node_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    shown: list[int] = []
    happens: list[Any] = [[1], ConnectionLost("gone"), ConnectionLost("gone"), [2, 3]]

    def look(admin: Any) -> list[Any]:
        if not happens:
            raise KeyboardInterrupt
        now = happens.pop(0)
        if isinstance(now, Exception):
            raise now
        return list(now)

    @contextmanager
    def connect(uri: str | None) -> Iterator[Any]:
        yield SimpleNamespace()

    monkeypatch.setattr(following, "connect", connect)
    monkeypatch.setattr(following, "Admin", lambda connection: connection)
    monkeypatch.setattr(following.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(output, "note", said.append)
    following.follow(None, look, shown.append)
    assert shown == [1, 2, 3] and said == ["no node answers, which is waited for: gone"]
    happens[:] = [AccessRefused("no")]
    with pytest.raises(AccessRefused):
        following.follow(None, look, shown.append)


def test_fresh_ones_are_ordered_by_their_numbers() -> None:
    fresh = Fresh()
    assert numbers(fresh.of([record(3), record(1, "b"), record(2)])) == [
        ("b", 1),
        ("a", 2),
        ("a", 3),
    ]
    assert fresh.of([record(3), record(2)]) == []


def test_settings_that_nodes_have_alike_are_one_row() -> None:
    of_a = (NodeSetting("x", 1, "default", ""), NodeSetting("y", [1], "file", ""))
    of_b = (NodeSetting("x", 1, "default", ""), NodeSetting("y", [2], "environment", ""))
    found = [(one.setting.name, one.nodes) for one in alike({"a": of_a, "b": of_b})]
    assert found == [("x", ("a", "b")), ("y", ("a",)), ("y", ("b",))]
