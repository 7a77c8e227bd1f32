"""In a node, a dictionary from which the first item is taken again and again is an `OrderedDict`.

`next(iter(...))` of a plain one passes over all items that were taken before, until it grows: a
queue of 100,000 that is emptied took seconds, and no line of Python shows it.
"""

from __future__ import annotations

import re

from tidy import house

FIRST = re.compile(r"next\(iter\(([\w.]*?)(\w+)(?:\.items\(\)|\.values\(\)|\.keys\(\))?\)")
FEW = {
    "warren_machines.metadata.node_registry": "removed",
    "warren_machines.metadata.policy_index": "policies",
    "warren_machines.queue.machine": "kept",
    "warren_machines.queue.ready.block_index": "_filled _touched",
    "warren_machines.queue.ready.leaves": "_unpacked",
    "warren_machines.queue.ready.service_order": "lane",
    "warren_machines.definition_files.export": "ALGORITHMS",
    "warren_raft.runtime.net.transport": "texts",
}
"""Those that have at most some hundred items, or hold ordered ones."""


def test_a_queue_is_no_plain_dictionary() -> None:
    findings = []
    used: dict[str, set[str]] = {}
    for module in house.sources():
        if not module.package.startswith("warren_"):
            continue
        text = "\n".join(module.lines)
        for found in FIRST.finditer(text):
            name = found[2]
            if name in FEW.get(module.name, "").split():
                used.setdefault(module.name, set()).add(name)
            elif not re.search(rf"\b{name}: OrderedDict\b", text):
                findings.append(f"{module.place}: {found[0]}")
    house.report(findings, "make it an OrderedDict, and take its items with popitem(last=False)")
    assert used == {module: set(names.split()) for module, names in FEW.items()}
