"""Handlers of the requests that need the version after this one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from upgrade.variant.commands import Note, Remark
from warren_broker.admin.caller import Answer, Asker
from warren_machines.metadata.cluster_version import check_needed
from warren_raft.versions import NEWEST
from warren_wire.admin import remarks as requests  # type: ignore[attr-defined]
from warren_wire.admin.requests import Performed

if TYPE_CHECKING:
    from upgrade.variant.wire_admin import remarks as requests


def _add(asker: Asker, request: requests.AddRemarkRequest, answer: Answer) -> None:
    check_needed(asker.state, NEWEST, "a remark of a queue")
    command: Any = Remark(request.text)
    asker.ask(asker.queue(request.queue), command, answer, lambda _: Performed())


def _get(asker: Asker, request: requests.GetRemarksRequest, answer: Answer) -> None:
    queue = asker.queue(request.queue)
    state = asker.broker.cluster.host.state(queue.group)
    answer(requests.Remarks(tuple(state.remarks)))


def _add_note(asker: Asker, request: requests.AddNoteRequest, answer: Answer) -> None:
    check_needed(asker.state, NEWEST, "a note")
    command: Any = Note(request.text)
    asker.broker.definitions.submit(command, asker.then(answer, lambda _: Performed()))


def _get_notes(asker: Asker, request: requests.GetNotesRequest, answer: Answer) -> None:
    state: Any = asker.state
    answer(requests.Remarks(tuple(state.notes)))
