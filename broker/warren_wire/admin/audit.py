"""The audit log: administrative changes, logins, refusals; and the request that reads it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

import msgspec

from warren_wire.admin.requests import AdminRequest, Natural, Result, Text, route, seen

AUDIT_COUNT_MAX: Final = 500
AuditKind: TypeAlias = Literal["change", "login", "refusal"]


class AuditRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a user did, or was refused.

    number    microseconds since the epoch by the node's clock; on a node it only rises
    kind      change: of definitions, queues, nodes; login: also a refused one; refusal: of anything
              else for want of a right
    user      that was given, for a refused login, or that has logged in
    door      AMQP 0.9.1, AMQP 1.0 or HTTP
    peer      the client's address and port
    action    the request's method and path, or AMQP's method
    target    what it is about, by name
    old, new  before and after a change, without secrets; new: what was asked for, where the object
              is not kept as a definition; None: not there, or not known
    outcome   done, refused, failed
    detail    why not
    left_out  so many records of this kind before it, which were too many in a second
    """

    number: int
    at: Annotated[str, seen(column=True)]
    node: Annotated[str, seen(column=True)]
    kind: Annotated[AuditKind, seen(column=True)]
    user: Annotated[str, seen(column=True)]
    door: Annotated[str, seen(column=True)]
    peer: Annotated[str, seen(column=True)]
    action: Annotated[str, seen(column=True)] = ""
    vhost: str = ""
    target: Annotated[dict[str, Any], seen(column=True)] = {}
    old: Any = None
    new: Any = None
    outcome: Annotated[str, seen(column=True)] = "done"
    detail: Annotated[str, seen(column=True)] = ""
    left_out: int = 0


class AuditPage(Result, frozen=True):
    """Records, the newest first.

    next     `before` of the request for older ones; "": there are none
    missing  nodes of the cluster that did not answer
    """

    records: tuple[AuditRecord, ...]
    next: str = ""
    missing: tuple[str, ...] = ()


class FoundRecords(msgspec.Struct, frozen=True):
    """What a node found.

    searched_to  number of the oldest record that was looked at, where more are older; 0: all were
    """

    records: tuple[AuditRecord, ...]
    searched_to: int = 0


class ListAuditRequest(AdminRequest[AuditPage], frozen=True):
    """Return records of the audit log of all nodes within reach, the newest first.

    So much of the log is looked through for one answer; where that found less, `next` continues.
    Answer: AuditPage.

    before    where an earlier answer ended
    count     records at most
    node      of that node only; "": of all
    kind      change, login or refusal; "": any
    user      of that user only; "": of any
    contains  a text that is in the record, which is JSON; "": any
    since     not before that time, in seconds since the epoch; 0: from the beginning
    """

    ROUTES: ClassVar = (route("GET /audit", "administrator", http=True),)
    before: Text = ""
    count: Annotated[int, msgspec.Meta(ge=1, le=AUDIT_COUNT_MAX)] = 100
    node: Text = ""
    kind: Literal["", "change", "login", "refusal"] = ""
    user: Text = ""
    contains: Text = ""
    since: Natural = 0
