"""A vhost's policies, and which of them an object follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from warren_machines.metadata.records import Arguments, Policy, QueueRecord
from warren_wire.errors import PreconditionFailed
from warren_wire.name_patterns import BadPattern, NameMatcher, Pattern
from warren_wire.policy_keys import applies_to_exchange, applies_to_queue, effective_config, merged
from warren_wire.queue_values.config import QueueConfig

POLICY_STEPS_MAX: Final = 50_000
"""Instructions of the patterns of a vhost's policies in all (`Pattern.steps`), and of as many of
its operator policies: what each byte of the name of a queue may cost when they have changed."""
FOUND_KEPT_MAX: Final = 50_000
"""Objects remembered with their policies until the policies change; beyond it all are forgotten."""


@dataclass(frozen=True, slots=True)
class EffectivePolicy:
    """What an object follows; policy, operator_policy: their names, "" for none.

    definition  of both, merged
    """

    policy: str = ""
    operator_policy: str = ""
    definition: Mapping[str, Any] = field(default_factory=dict)


NO_POLICY: Final = EffectivePolicy()


class _Ranked:
    """The policies for one kind of object, the one that wins first, with their patterns."""

    __slots__ = ("_policies", "matcher")

    def __init__(self, policies: list[Policy]) -> None:
        self._policies: list[Policy] = []
        patterns = []
        for policy in sorted(policies, key=lambda one: (-one.priority, one.name)):
            try:
                patterns.append(Pattern(policy.pattern))
            except BadPattern:
                continue  # refused when it is set; one of another version applies to nothing
            self._policies.append(policy)
        self.matcher = NameMatcher(patterns)

    def first(self, name: str) -> Policy | None:
        """Return the policy that applies to the object of that name."""
        at = self.matcher.first(name)
        return None if at is None else self._policies[at]


@dataclass(slots=True)
class PolicyIndex:
    """Policies by name, and what is derived of them.

    The derived parts are not part of the state: they are made when they are needed, by every node
    for itself, and never by a command. What a queue does follows its own log
    (`cluster.leader.policy_follower`).
    """

    user: dict[str, Policy] = field(default_factory=dict)
    operator: dict[str, Policy] = field(default_factory=dict)
    _ranked: dict[str, tuple[_Ranked, _Ranked]] = field(
        default_factory=dict, compare=False, repr=False
    )
    _found: dict[tuple[str, str], EffectivePolicy] = field(
        default_factory=dict, compare=False, repr=False
    )
    _configs: dict[int, QueueConfig] = field(default_factory=dict, compare=False, repr=False)

    def of(self, operator: bool) -> dict[str, Policy]:
        """Return the operator policies, or the others."""
        return self.operator if operator else self.user

    def changed(self) -> None:
        """Forget what was derived of the policies before they changed."""
        self._ranked.clear()
        self._found.clear()
        self._configs.clear()

    def of_queue(self, name: str, kind: str) -> EffectivePolicy:
        """Return what a queue follows; kind: `QueueConfig.followed_as`."""
        return self._effective(kind, name)

    def of_exchange(self, name: str) -> EffectivePolicy:
        """Return what an exchange follows."""
        return self._effective("exchange", name)

    def config_of(self, queue: QueueRecord) -> QueueConfig:
        """Return a queue's settings as they are to be under the policies."""
        if (not self.user and not self.operator) or queue.store_of:
            return queue.config
        config = self._configs.get(queue.group)
        if config is None:
            if len(self._configs) >= FOUND_KEPT_MAX:
                self._configs.clear()
            config = self._configs[queue.group] = self.apply(queue.config, queue.arguments)
        return config

    def apply(self, config: QueueConfig, given: Arguments) -> QueueConfig:
        """Return the settings of a queue with that declaration under the policies."""
        found = self.of_queue(config.name, config.followed_as)
        return effective_config(config, given, found.definition)

    def _effective(self, kind: str, name: str) -> EffectivePolicy:
        if not self.user and not self.operator:
            return NO_POLICY
        found = self._found.get((kind, name))
        if found is None:
            if len(self._found) >= FOUND_KEPT_MAX:
                self._found.clear()
            ranked = self._ranked.get(kind)
            if ranked is None:
                ranked = self._ranked[kind] = (
                    _Ranked([one for one in self.user.values() if _for(kind, one)]),
                    _Ranked([one for one in self.operator.values() if _for(kind, one)]),
                )
            found = _both(ranked[0].first(name), ranked[1].first(name))
            self._found[kind, name] = found
        return found

    def cost(self, name: str, kind: str) -> int:
        """Return the steps that `of_queue` took at most; see `turns`."""
        ranked = self._ranked.get(kind, ())
        return sum(one.matcher.cost(name) for one in ranked)

    def check_patterns(self, operator: bool, new: Policy | None = None) -> None:
        """Raise PreconditionFailed when the patterns are too large in all; for submitters.

        new  a policy that is to be set
        """
        policies = dict(self.of(operator))
        if new is not None:
            policies[new.name] = new
        steps = sum(_steps(policy.pattern) for policy in policies.values())
        if steps > POLICY_STEPS_MAX:
            vhost = next(iter(policies.values())).vhost
            raise PreconditionFailed(
                f"the patterns of the {len(policies)} {'operator ' if operator else ''}policies of "
                f"vhost '{vhost}' are too large: {steps:,} instructions in all, "
                f"{POLICY_STEPS_MAX:,} is the most; use simpler patterns, without large repeats"
            )

    def check(self, vhost: str) -> None:
        """Assert that every policy is filed under its name."""
        for operator in (False, True):
            for name, policy in self.of(operator).items():
                assert (policy.vhost, policy.name, policy.operator) == (vhost, name, operator)


@lru_cache(maxsize=4096)
def _steps(pattern: str) -> int:
    try:
        return Pattern(pattern).steps
    except BadPattern:
        return 0


def _for(kind: str, policy: Policy) -> bool:
    if kind == "exchange":
        return applies_to_exchange(policy.apply_to)
    return applies_to_queue(policy.apply_to, policy.definition, kind)


def _both(policy: Policy | None, operator: Policy | None) -> EffectivePolicy:
    if policy is None and operator is None:
        return NO_POLICY
    return EffectivePolicy(
        policy.name if policy else "",
        operator.name if operator else "",
        merged(policy.definition if policy else {}, operator.definition if operator else {}),
    )
