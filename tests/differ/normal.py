"""The normal form of what a client observes: lines that do not depend on time or names of nodes."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from typing import Any

import pamqp.commands as spec
from pamqp.commands import INDEX_MAPPING

from differ.wire import Event

GENERATED = (
    (re.compile(r"amq\.gen-[\w-]+"), "amq.gen-NAME"),
    (re.compile(r"amq\.ctag-[\w-]+"), "amq.ctag-NAME"),
    (re.compile(r"amq\.rabbitmq\.reply-to\.[\w.%=+/-]{30,}"), "amq.rabbitmq.reply-to.NAME"),
    (re.compile(r"'127\.0\.0\.1:\d+(?: -> 127\.0\.0\.1:\d+)?'"), "'CONNECTION'"),
)
UNSHOWN = {"ticket", "cluster_id", "out_of_band", "known_hosts", "nowait"}


def method(event: Event) -> str:
    """Return a method, and its message, as one line."""
    found = event.method
    if isinstance(found, spec.Channel.Close | spec.Connection.Close):
        cause = INDEX_MAPPING.get((found.class_id or 0) << 16 | (found.method_id or 0))
        by = f", for {cause.__qualname__}" if cause else ""
        return text(f"{found.name} {found.reply_code} {found.reply_text}{by}")
    if isinstance(found, spec.Basic.Ack | spec.Basic.Nack):
        return found.name  # a confirm: its number is the scenario's affair
    fields = {
        name: given
        for name, given in found
        if name not in UNSHOWN and given is not None and given is not False
    }
    parts = [found.name, *(f"{name}={value(given)}" for name, given in fields.items())]
    if event.properties is not None:
        parts.append(f"body={value(event.body)}")
        parts.extend(
            f"{name}={value(given)}"
            for name, given in event.properties
            if given not in (None, "") or (name == "headers" and given)
        )
    return text(" ".join(parts))


def value(given: Any) -> str:
    """Return a field's value, keys of tables in order, times left out."""
    if isinstance(given, datetime.datetime):
        return "TIME"
    if isinstance(given, Mapping):
        items = (f"{key}: {value(given[key])}" for key in sorted(given))
        return "{" + ", ".join(items) + "}"
    if isinstance(given, list | tuple):
        return "[" + ", ".join(map(value, given)) + "]"
    if isinstance(given, bytes | bytearray):
        return repr(bytes(given).decode("utf-8", "backslashreplace"))
    return repr(given)


def text(line: str) -> str:
    """Return a line without generated names and line breaks."""
    for pattern, name in GENERATED:
        line = pattern.sub(name, line)
    return " ".join(line.split())
