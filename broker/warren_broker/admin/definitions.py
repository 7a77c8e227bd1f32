"""Handlers of the requests for definitions; every change is logged with its user."""

from __future__ import annotations

import zlib

import msgspec

from warren_broker.admin.caller import Answer, Asker
from warren_broker.admin.parameters import setter
from warren_machines.definition_files.check import NAMES_SHOWN_MAX, CheckedImport
from warren_machines.definition_files.document import DOCUMENT_BYTES_MAX, parse
from warren_machines.definition_files.export import export
from warren_machines.metadata.runtime_parameters import cluster_name
from warren_wire import VERSION, errors
from warren_wire.admin import definitions as m
from warren_wire.admin.definitions import ExportedFile


def _export(asker: Asker, request: m.ExportRequest, answer: Answer) -> None:
    state = asker.state
    cluster = cluster_name(state, asker.broker.settings.cluster)
    found = export(state, cluster, VERSION, request.vhost, asker.broker.seal.opened)
    notes = found.notes[:NAMES_SHOWN_MAX]
    if len(found.notes) > len(notes):
        notes = (*notes, f"… and {len(found.notes) - len(notes):,} more")
    answer(ExportedFile(zlib.compress(to_file(found.document)), notes))


def _import(asker: Asker, request: m.ImportRequest, answer: Answer) -> None:
    if not isinstance(request.packed, bytes):
        raise errors.InvalidArgument("the body must be a file of definitions, compressed by zlib")
    document = parse(unpack(request.packed))
    imports, share = asker.broker.imports, asker.broker.publishing.shares.of(asker.connection)

    def checked(found: CheckedImport) -> None:
        report = msgspec.structs.replace(found.report, dry_run=request.dry_run)
        if request.dry_run:
            answer(report)
            return
        asker.log(f"import {report.summary()}")
        imports.submit(found, asker.then(answer, lambda reply: report))

    check = imports.check(document, request.vhost, setter(asker), share.steps)
    share.run(check, asker.guard(checked), answer)


def unpack(packed: bytes) -> bytes:
    """Return a file's bytes; raise errors.InvalidArgument when it is damaged or too large."""
    inflating = zlib.decompressobj()
    try:
        data = inflating.decompress(packed, DOCUMENT_BYTES_MAX + 1)
    except zlib.error as error:
        raise errors.InvalidArgument(
            f"definitions that are not compressed by zlib: {error}"
        ) from None
    if len(data) > DOCUMENT_BYTES_MAX:
        raise errors.InvalidArgument(
            f"definitions of more than {DOCUMENT_BYTES_MAX:,} bytes; import them in parts, such "
            "as one vhost at a time"
        )
    if not inflating.eof:
        raise errors.InvalidArgument("definitions that are not complete")
    return data


def to_file(document: dict[str, object]) -> bytes:
    """Return a document as the bytes of a file, indented."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2)
