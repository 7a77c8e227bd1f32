"""The cluster's version (`warren_raft.versions`): which nodes have which, and raising it."""

from __future__ import annotations

from collections.abc import Iterable

from warren_machines.metadata.changes import NodesChanged
from warren_machines.metadata.commands import MetadataDone, RaiseVersion
from warren_machines.metadata.metadata_context import MetadataContext
from warren_machines.metadata.records import ClusterNode
from warren_machines.metadata.state import MetadataState
from warren_raft.versions import Versions, remedy
from warren_wire import errors


def nodes_that_count(state: MetadataState) -> Iterable[ClusterNode]:
    """Return the nodes that must be able to read what the others write."""
    return (one for one in state.nodes.values() if not one.forgetting)


def attainable(state: MetadataState) -> int:
    """Return the newest version that every node has; the cluster's, where no node is known."""
    newest = min((one.versions.newest for one in nodes_that_count(state)), default=0)
    return max(newest, state.version)


def held_back_by(state: MetadataState, version: int) -> tuple[str, ...]:
    """Return the nodes without that version, sorted."""
    return tuple(sorted(one.name for one in nodes_that_count(state) if version not in one.versions))


def check_fits(state: MetadataState, name: str, versions: Versions) -> None:
    """Raise NotAllowed for a node without the cluster's version."""
    if state.version not in versions:
        raise errors.NotAllowed(
            f"node '{name}' has {versions}, and the cluster has version {state.version}; "
            f"{remedy(versions, state.version)}"
        )


def check_needed(state: MetadataState, version: int, what: str) -> None:
    """Raise PreconditionFailed for what needs a version that the cluster has not yet.

    what  as the subject of the text: "a queue with x"
    """
    if state.version >= version:
        return
    behind = held_back_by(state, version)
    raise errors.PreconditionFailed(
        f"{what} needs version {version} of the cluster, which has version {state.version}; "
        + (
            f"upgrade {named_nodes(behind)}"
            if behind
            else "every node has it: `warren cluster finish-upgrade` raises it"
        )
    )


def named_nodes(names: Iterable[str]) -> str:
    """Return "node 'a'", or "nodes 'a', 'b'"."""
    quoted = [f"'{name}'" for name in names]
    return f"node{'s' if len(quoted) > 1 else ''} {', '.join(quoted)}"


def raise_version(context: MetadataContext, command: RaiseVersion) -> MetadataDone:
    """Raise the cluster's version.

    1. Every node has version 2, and a leader proposes it.  2. One is started with the program that
    it had before; its start is in the log first.  3. It could not read what the others would write
    from now on: refused.
    """
    state = context.state
    if command.version > state.version:
        behind = held_back_by(state, command.version)
        if behind:
            raise errors.PreconditionFailed(
                f"the cluster stays at version {state.version}: {named_nodes(behind)} has not "
                f"version {command.version}; upgrade it"
            )
        state.version = command.version
        context.changes.append(NodesChanged())
    return MetadataDone()
