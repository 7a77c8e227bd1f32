"""`warren settings`: the settings of nodes, and where each comes from."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from warren.admin import Admin
from warren.cli import output
from warren.cli.target import Json, Uri, connect
from warren.errors import Unavailable
from warren_wire.admin.node_facts import NodeSetting


class SettingOfNodes(NamedTuple):
    """A setting that some nodes have alike."""

    nodes: tuple[str, ...]
    setting: NodeSetting


def settings(
    node: Annotated[str, typer.Argument(help="of this node only; without it: of all")] = "",
    contains: Annotated[str, typer.Option(help="a text in the name, as tls or limits.")] = "",
    origin: Annotated[str, typer.Option(help="default, file or environment: from there only")] = "",
    changed: Annotated[bool, typer.Option("--changed", help="only what is no default")] = False,
    uri: Uri = None,
    json: Json = False,
) -> None:
    """Show the settings of nodes with the value of each, and where it comes from.

    A setting that nodes have with different values has a row for each value.
    """
    with connect(uri) as connection:
        admin = Admin(connection)
        names = (node,) if node else tuple(one.name for one in admin.nodes.list())
        found: dict[str, tuple[NodeSetting, ...]] = {}
        for name in names:
            try:
                found[name] = admin.cluster.settings(name)
            except Unavailable as error:
                if node:
                    raise
                output.note(f"node {name}: {error}")
    rows = [
        one
        for one in alike(found)
        if contains in one.setting.name
        and one.setting.origin in ((origin,) if origin else ("default", "file", "environment"))
        and not (changed and one.setting.origin == "default")
    ]
    if json:
        output.as_json([{"nodes": one.nodes, **_fields(one.setting)} for one in rows])
        return
    columns: dict[str, output.Column] = {
        "name": lambda one: one.setting.name,
        "value": lambda one: one.setting.value,
        "from": lambda one: one.setting.origin,
        "nodes": lambda one: "all" if len(one.nodes) == len(names) else ", ".join(one.nodes),
    }
    output.listing(rows, json, columns)


def alike(found: dict[str, tuple[NodeSetting, ...]]) -> list[SettingOfNodes]:
    """Return the settings by name; each with the nodes where its value and origin are the same."""
    groups: dict[tuple[str, str, str], tuple[NodeSetting, list[str]]] = {}
    for node, settings_of_node in found.items():
        for one in settings_of_node:
            key = (one.name, repr(one.value), one.origin)
            groups.setdefault(key, (one, []))[1].append(node)
    return [SettingOfNodes(tuple(nodes), one) for _, (one, nodes) in sorted(groups.items())]


def _fields(one: NodeSetting) -> dict[str, object]:
    return {"name": one.name, "value": one.value, "origin": one.origin, "meaning": one.meaning}
