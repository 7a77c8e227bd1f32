"""The tables of settings and metrics in docs/reference have what the code has, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from warren_broker.cluster.led_queues import NO_COUNTS
from warren_broker.config import AlarmSettings, NodeConfig
from warren_broker.counting.message_stats import COUNTED
from warren_broker.metrics.exposition import ProcessReading, ScrapeView, text
from warren_broker.metrics.readings import CountedQueue, NodeReading, QueueReading
from warren_raft.runtime.group import LogPosition

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("settings", "metrics", "tls", "oauth", "monitor", "form-and-grow")
MANUAL = "".join(next(DOCS.glob(f"*/{page}.md")).read_text() for page in PAGES)
SHOWN_AS_TOML = ("", "listen", "tls", "auth_oauth2")
"""Tables that the manual shows as an example with comments; "" is the top one."""
ELSEWHERE = ("management", "shovels")
"""Tables that another page describes."""
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "h": 3_600_000, "days": 86_400_000}
AS_PROSE = {"event_exchange.vhost": "`default_vhost`", "log.exchange.level": "that of the log"}
"""Defaults that are another setting's value: None in the code."""


def settings(model: type[BaseModel], table: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Each key with its table's name before it, and its field."""
    for name, field in model.model_fields.items():
        path = f"{table}.{name}" if table else name
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from settings(kind, path)
        else:
            yield path, field


def in_manual() -> dict[str, str]:
    """Each key of the manual's tables, with its default."""
    found = {}
    for heading, rows in re.findall(r"Keys of the tables? ([^\n]*?):\n\n((?:\|.*\n)+)", MANUAL):
        tables = re.findall(r"`([^`]+)`", heading)
        for row in rows.splitlines()[2:]:
            key, default = (cell.strip() for cell in row.split("|")[1:3])
            key = key.strip("`")
            found[key if len(tables) > 1 else f"{tables[0]}.{key}"] = default
    return found


def value_of(shown: str) -> Any:
    """What a default of the manual stands for."""
    bare = shown.strip("`")
    number, _, unit = bare.replace(",", "").partition(" ")
    if number.isdigit():
        return int(number) * UNITS.get(unit, 1)
    return {"none": None, "true": True, "false": False}.get(bare, bare)


KEYS = dict(settings(NodeConfig))


@pytest.mark.parametrize("path", KEYS)
def test_each_setting_is_in_the_manual(path: str) -> None:
    table, _, key = path.rpartition(".")
    if path.split(".")[0] in ELSEWHERE:
        return
    if table in SHOWN_AS_TOML or table.split(".")[0] == "auth_oauth2":
        assert re.search(rf"\b{key}\b", MANUAL), f"docs/reference/settings.md does not name {path}"
        return
    default = KEYS[path].default
    if path == "log.exchange.enabled":
        assert "`log.exchange.enabled`" in MANUAL and default is None
        return
    shown = in_manual()[path]
    assert shown == AS_PROSE.get(path, shown)
    if path not in AS_PROSE:
        assert value_of(shown) == default, (path, shown, default)


def test_the_manual_names_no_other_setting() -> None:
    known = {*KEYS, "log.exchange", "shovels.NAME", "management.…"}
    assert not in_manual().keys() - known


def families(per_object: bool) -> set[str]:
    """The names of all families of a scrape."""
    at = LogPosition(1, 2, 3, 4, 5)
    counted = CountedQueue("/", "q", (0,) * len(COUNTED))
    reading = NodeReading("a", "c", 1, {}, 0, 0, (), {}, 0, 0, definitions=at)
    reading.queues.append(QueueReading("/", "q", "quorum", at, NO_COUNTS))
    reading.counted.append(counted)
    process = ProcessReading(0, 0, 0, 0, [], None, {})
    shown = text(reading, process, AlarmSettings(), ScrapeView("aggregated", per_object))
    return {
        name if kind != "counter" or name.endswith("_total") else f"{name}_total"
        for name, kind in re.findall(r"^# TYPE (\S+) (\S+)$", shown.decode(), re.MULTILINE)
    }


def test_each_metric_is_in_the_manual() -> None:
    """A name that follows one with the same beginning is given by its end."""
    section = MANUAL[MANUAL.index("| metrics | of |") :].partition("`/metrics/memory-breakdown`")[0]
    named: set[str] = set()
    every = families(False) | families(True)
    for line in section.replace("\n`", " `").splitlines():
        before = ""
        for name in re.findall(r"`([a-z_]+)`", line):
            if name.startswith("_"):
                ends = [one for one in every if one.endswith(name)]
                assert ends, f"docs/reference/metrics.md names {name}, which there is not"
                named.add(max(ends, key=lambda one: (_alike(one, before), -len(one))))
            elif name.startswith(("rabbitmq_", "warren_")) and name != "rabbitmq_prometheus":
                assert name in every, f"docs/reference/metrics.md names {name}, which there is not"
                named.add(name)
                before = name
    missing = sorted(every - named)
    assert not missing, f"docs/reference/metrics.md does not name {missing}"


def _alike(one: str, other: str) -> int:
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
