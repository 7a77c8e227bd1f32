"""The policy keys of mirrored queues: their values, how they merge, what they ask for.

Names, refusals and rules of merging are those of RabbitMQ 3.13, the last version with mirrored
classic queues. What the keys mean here is in docs/explanation/membership.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeGuard

Definition: TypeAlias = Mapping[str, object]
Mode: TypeAlias = Literal["exactly", "all", "nodes"]

MODE: Final = "ha-mode"
PARAMS: Final = "ha-params"
NEED_A_MODE: Final = (
    PARAMS,
    "ha-sync-mode",
    "ha-sync-batch-size",
    "ha-promote-on-shutdown",
    "ha-promote-on-failure",
)
"""Keys that are refused without `ha-mode`."""
MASTER_LOCATORS: Final = ("min-masters", "client-local", "random")
"""Values of `queue-master-locator`."""


@dataclass(frozen=True, slots=True)
class MirrorPolicy:
    """The members that a definition asks for.

    count  for `exactly`: how many
    nodes  for `nodes`: which, some of them perhaps unknown
    """

    mode: Mode
    count: int = 0
    nodes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return it as an operator wrote it."""
        if self.mode == "exactly":
            return f"ha-mode exactly {self.count}"
        return f"ha-mode nodes {', '.join(self.nodes)}" if self.mode == "nodes" else "ha-mode all"


def mirror_policy(definition: Definition) -> MirrorPolicy | None:
    """Return what an effective definition asks for; None: it says nothing about members.

    A definition that was merged may have the parameters of another mode: they are ignored.
    """
    mode, params = definition.get(MODE), definition.get(PARAMS)
    if mode == "all":
        return MirrorPolicy("all")
    if mode == "exactly" and _is_count(params):
        return MirrorPolicy("exactly", count=params)
    if mode == "nodes" and isinstance(params, list) and params:
        return MirrorPolicy("nodes", nodes=tuple(sorted({str(node) for node in params})))
    return None


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


# ------------------------------------------------------------------ checks


def problem_with(definition: Definition, shown: Mapping[str, str]) -> str | None:
    """Return why these keys of a definition cannot be set; None: they can, or there are none.

    shown  the values as texts
    """
    if MODE not in definition:
        if any(key in definition for key in NEED_A_MODE):
            return (
                "ha-mode must be specified to specify ha-params, "
                "ha-sync-mode or ha-promote-on-shutdown"
            )
    else:
        problem = _problem_with_members(definition, shown)
        if problem is not None:
            return problem
    for key, words in (
        ("ha-sync-mode", ("manual", "automatic")),
        ("ha-promote-on-shutdown", ("always", "when-synced")),
        ("ha-promote-on-failure", ("always", "when-synced")),
    ):
        if key in definition and definition[key] not in words:
            return f'{key} must be "{words[0]}" or "{words[1]}", got {shown[key]}'
    if "ha-sync-batch-size" in definition and not _is_count(definition["ha-sync-batch-size"]):
        size = shown["ha-sync-batch-size"]
        return f"ha-sync-batch-size takes an integer greater than 0, {size} given"
    if definition.get("queue-master-locator", MASTER_LOCATORS[0]) not in MASTER_LOCATORS:
        return f"{shown['queue-master-locator']} is not a valid master locator"
    return None


def _problem_with_members(definition: Definition, shown: Mapping[str, str]) -> str | None:
    mode, params = definition[MODE], definition.get(PARAMS)
    given = shown.get(PARAMS, "none")
    if mode == "all":
        return 'ha-mode="all" does not take parameters' if PARAMS in definition else None
    if mode == "exactly":
        return None if _is_count(params) else f'ha-mode="exactly" takes an integer, {given} given'
    if mode != "nodes":
        return f"{shown[MODE]} is not a valid ha-mode value"
    if not isinstance(params, list):
        return f'ha-mode="nodes" takes a list, {given} given'
    if not params:
        return 'ha-mode="nodes" list must be non-empty'
    if any(not isinstance(node, str) for node in params):
        return f'ha-mode="nodes" takes a list of strings, {given} was not a string'
    return None


# ------------------------------------------------------------------ with an operator policy


def merge_mode(one: Any, other: Any) -> Any:
    """Return the mode of a policy and an operator policy: all before exactly before nodes."""
    for mode in ("all", "exactly"):
        if mode in (one, other):
            return mode
    return one


def merge_params(one: Any, other: Any) -> Any:
    """Return the larger number, or the longer list; a number goes before a list."""
    if _is_count(one) and _is_count(other):
        return max(one, other)
    if _is_count(one) or _is_count(other):
        return one if _is_count(one) else other
    return one if len(one) > len(other) else other
