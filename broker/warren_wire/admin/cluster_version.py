"""The cluster's version and that of each node, and the requests for it (upgrade.md)."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from warren_wire.admin.requests import AdminRequest, Result, route, seen


class NodeVersions(msgspec.Struct, frozen=True):
    """The versions that a node's program has.

    holds_back  it lacks the next version, which another node has
    """

    name: Annotated[str, seen(column=True)]
    oldest: Annotated[int, seen(column=True)]
    newest: Annotated[int, seen(column=True)]
    holds_back: Annotated[bool, seen(column=True)] = False


class ClusterVersion(Result, frozen=True):
    """The version of everything that the nodes write and send.

    attainable  the newest version that every node has
    nodes       by name, those that count: none that is being forgotten
    """

    version: int
    attainable: int
    nodes: tuple[NodeVersions, ...]

    @property
    def held_back_by(self) -> tuple[str, ...]:
        """The nodes that keep it from being raised further; empty: no node has a later version."""
        return tuple(one.name for one in self.nodes if one.holds_back)


class GetClusterVersionRequest(AdminRequest[ClusterVersion], frozen=True):
    """Return the cluster's version, those of each node, and which nodes hold it back."""

    ROUTES: ClassVar = (route("GET /cluster-version", "monitoring", http=True),)


class FinishUpgradeRequest(AdminRequest[ClusterVersion], frozen=True):
    """Raise the cluster's version to the newest one that every node has; there is no way back.

    Refused where only some nodes have a later one; 409.
    """

    ROUTES: ClassVar = (
        route("POST /cluster-version/finish-upgrade", "administrator", http=True, shows=True),
    )
