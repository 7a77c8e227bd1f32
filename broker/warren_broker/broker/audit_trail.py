"""What users do to the cluster, and what they are refused, as records."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from warren_broker.cluster.client.node_messages import EventExchange
from warren_raft.runtime.loop import Loop
from warren_wire.admin.audit import AuditKind, AuditRecord
from warren_wire.errors import Refusal
from warren_wire.links.uris import shown_uri

VALUE_BYTES_MAX: Final = 4 << 10
"""Of an old or new value as JSON; of a larger one the beginning is kept."""
RECORD_TEXT_MAX: Final = 1_000
SECRET_WORDS: Final = ("password", "hashing_algorithm", "secret", "passphrase", "token")
"""A key with one of them, such as `client_secret`, is left out with its value."""
BURST_RECORDS: Final = 500
RECORDS_PER_SECOND: Final = 20
"""Of logins, and of refusals: clients cause any number of them. Changes need a right."""
HTTP_LOGIN_MS: Final = 3_600_000
HTTP_LOGINS_MAX: Final = 1_024
"""Over HTTP each request logs in: of a user at an address one in this time is recorded."""
_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)


class AuditTrail:
    """Makes the records of this node, and passes them on.

    on_record  called with each; nothing is recorded while there is none
    """

    def __init__(self, loop: Loop, node: str, events: EventExchange) -> None:
        self._loop = loop
        self.node = node
        self._events = events
        self._left: dict[str, tuple[float, int]] = {}
        self._left_out: dict[str, int] = {}
        self._http_logins: OrderedDict[tuple[str, str], int] = OrderedDict()
        self.on_record: list[Callable[[AuditRecord], None]] = []
        self._last = 0

    def keep(self, record: Callable[[AuditRecord], None], last: int) -> None:
        """Have each record kept; last: number of the last one of an earlier run."""
        self._last = max(self._last, last)
        self.on_record.append(record)

    def change(self, door: str, user: str, peer: str, action: str, **more: Any) -> None:
        """Record a change that was made or has failed; more: fields of AuditRecord."""
        self._record("change", door, user, peer, action=action, **more)

    def login(self, door: str, user: str, peer: str, mechanism: str, why: str | None) -> None:
        """Record a login; why: it was refused."""
        more = {} if why is None else {"outcome": "refused", "detail": why}
        self._record("login", door, user, peer, action=mechanism, **more)

    def http_login(self, user: str, peer: str) -> None:
        """Record a login over HTTP, unless that was done within HTTP_LOGIN_MS."""
        key, now = (user, peer.rpartition(":")[0]), self._loop.now_ms
        if now - self._http_logins.get(key, -HTTP_LOGIN_MS) < HTTP_LOGIN_MS:
            return
        self._http_logins[key] = now
        self._http_logins.move_to_end(key)
        if len(self._http_logins) > HTTP_LOGINS_MAX:
            self._http_logins.popitem(last=False)
        self.login("HTTP", user, peer, "PLAIN", None)

    def refusal(
        self, door: str, user: str, peer: str, action: str, refusal: Refusal, vhost: str = ""
    ) -> None:
        """Record an operation that was refused for want of a right."""
        more = {"vhost": vhost, "outcome": "refused", "detail": refusal.detail}
        self._record("refusal", door, user, peer, action=action, **more)

    def _record(self, kind: AuditKind, door: str, user: str, peer: str, **more: Any) -> None:
        if not self.on_record or (kind != "change" and not self._has_room(kind)):
            return
        at_ms = self._loop.clock.epoch_ms()
        self._last = max(self._last + 1, at_ms * 1000)
        more["detail"] = more.get("detail", "")[:RECORD_TEXT_MAX]
        for name in ("old", "new"):
            more[name] = _bounded(without_secrets(more.get(name)))
        record = AuditRecord(
            number=self._last,
            at=datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds"),
            node=self.node,
            kind=kind,
            user=user[:RECORD_TEXT_MAX],
            door=door,
            peer=peer,
            left_out=self._left_out.pop(kind, 0),
            **more,
        )
        for call in self.on_record:
            call(record)
        if self._events.on:
            self._events.tell(f"audit.{kind}", _facts(record), at_ms)

    def _has_room(self, kind: str) -> bool:
        left, at = self._left.get(kind, (float(BURST_RECORDS), self._loop.now_ms))
        now = self._loop.now_ms
        left = min(BURST_RECORDS, left + (now - at) / 1000 * RECORDS_PER_SECOND)
        if left < 1:
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
        self._left[kind] = (left - (left >= 1), now)
        return left >= 1


def _facts(record: AuditRecord) -> dict[str, Any]:
    """Return the headers of a record's event; values are JSON."""
    facts: dict[str, Any] = msgspec.to_builtins(record)
    for name in ("target", "old", "new"):
        if name in facts:
            facts[name] = _ENCODER.encode(facts[name]).decode()
    return {**facts, "user_who_performed_action": record.user}


def without_secrets(value: object) -> object:
    """Return a value as JSON has it, without passwords, their hashes, and those in URIs."""
    if value is None:
        return None
    return _without(msgspec.json.decode(_ENCODER.encode(value)))


def _without(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _without(one) for key, one in value.items() if not _is_secret(key)}
    if isinstance(value, list):
        return [_without(one) for one in value]
    return shown_uri(value) if isinstance(value, str) and "://" in value else value


def _is_secret(key: str) -> bool:
    lowered = key.lower()
    return any(word in lowered for word in SECRET_WORDS)


def _bounded(value: object) -> object:
    if value is None:
        return None
    text = _ENCODER.encode(value)
    if len(text) <= VALUE_BYTES_MAX:
        return value
    return {"cut": text[:VALUE_BYTES_MAX].decode("utf-8", "replace"), "bytes": len(text)}
