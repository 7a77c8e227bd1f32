"""The metadata state as bytes: equal states give equal bytes.

The layout of everything in it is replicated state (see `records`), in the form of the cluster's
version, which it begins with.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from warren_machines.metadata import records
from warren_machines.metadata.commands import AnyReply
from warren_machines.metadata.state import MetadataState, Scope, UplinkState
from warren_machines.queue.commands import Incarnation, UplinkId


class UplinkImage(msgspec.Struct, frozen=True, array_like=True):
    """An `UplinkState`."""

    uplink: UplinkId
    node: str
    last_seq: int
    answers: tuple[tuple[int, tuple[AnyReply, ...]], ...]


class Image(msgspec.Struct, frozen=True, array_like=True):
    """A `MetadataState`, every part sorted; queues in the order of their groups."""

    version: int
    bootstrapped: bool
    last_group: int
    vhosts: tuple[records.Vhost, ...]
    exchanges: tuple[records.Exchange, ...]
    queues: tuple[records.QueueRecord, ...]
    bindings: tuple[records.Binding, ...]
    users: tuple[records.User, ...]
    grants: tuple[records.Grant, ...]
    lives: tuple[tuple[str, UplinkId], ...]
    retired: tuple[tuple[str, tuple[UplinkId, ...]], ...]
    uplinks: tuple[UplinkImage, ...]
    nodes: tuple[records.ClusterNode, ...]
    removed: tuple[tuple[int, str], ...]
    numbers: tuple[tuple[str, Incarnation], ...]
    policies: tuple[records.Policy, ...]
    parameters: tuple[records.Parameter, ...]
    loaded: str


_ENCODER: Final = msgspec.msgpack.Encoder(order="deterministic")
_DECODER: Final = msgspec.msgpack.Decoder(Image)


def to_bytes(state: MetadataState) -> bytes:
    """Encode the whole state."""
    scopes = [state.scopes[name] for name in sorted(state.scopes)]
    return _ENCODER.encode(
        Image(
            version=state.version,
            bootstrapped=state.bootstrapped,
            last_group=state.last_group,
            vhosts=tuple(scope.vhost for scope in scopes),
            exchanges=tuple(
                scope.exchanges[name] for scope in scopes for name in sorted(scope.exchanges)
            ),
            queues=tuple(state.groups[group] for group in sorted(state.groups)),
            bindings=tuple(
                scope.bindings[source][key]
                for scope in scopes
                for source in sorted(scope.bindings)
                for key in sorted(scope.bindings[source])
            ),
            users=tuple(state.users[name] for name in sorted(state.users)),
            grants=tuple(
                state.grants[key]
                for key in sorted(
                    state.grants, key=lambda key: (*key[:2], key[2] or "", bool(key[2]))
                )
            ),
            lives=tuple(sorted(state.lives.items())),
            retired=tuple(sorted(state.retired.items())),
            uplinks=tuple(
                UplinkImage(uplink, one.node, one.last_seq, tuple(one.answers))
                for uplink, one in sorted(state.uplinks.items())
            ),
            nodes=tuple(state.nodes[name] for name in sorted(state.nodes)),
            removed=tuple(state.removed.items()),
            numbers=tuple(sorted(state.numbers.items())),
            policies=tuple(
                kept[name]
                for scope in scopes
                for kept in (scope.policies.user, scope.policies.operator)
                for name in sorted(kept)
            ),
            parameters=(
                *(state.global_parameters[name] for name in sorted(state.global_parameters)),
                *(scope.parameters[key] for scope in scopes for key in sorted(scope.parameters)),
            ),
            loaded=state.loaded,
        )
    )


def from_bytes(data: bytes) -> MetadataState:
    """Decode a state; raises msgspec.MsgspecError."""
    image = _DECODER.decode(data)
    state = MetadataState(image.bootstrapped, image.last_group)
    for vhost in image.vhosts:
        state.scopes[vhost.name] = Scope(vhost)
    for exchange in image.exchanges:
        state.scopes[exchange.vhost].exchanges[exchange.name] = exchange
    for queue in image.queues:
        state.add_queue(queue)
    for binding in image.bindings:
        state.scopes[binding.vhost].add_binding(binding)
    state.users = {user.name: user for user in image.users}
    for grant in image.grants:
        state.put_grant(grant)
    state.lives = dict(image.lives)
    state.retired = dict(image.retired)
    for one in image.uplinks:
        kept = sum(max(1, len(replies)) for _, replies in one.answers)
        state.uplinks[one.uplink] = UplinkState(one.node, one.last_seq, deque(one.answers), kept)
    state.nodes = {one.name: one for one in image.nodes}
    state.removed = dict(image.removed)
    state.numbers = dict(image.numbers)
    for policy in image.policies:
        state.scopes[policy.vhost].policies.of(policy.operator)[policy.name] = policy
    for parameter in image.parameters:
        if parameter.vhost:
            kept_here = state.scopes[parameter.vhost].parameters
            kept_here[parameter.component, parameter.name] = parameter
        else:
            state.global_parameters[parameter.name] = parameter
    state.loaded = image.loaded
    state.version = image.version
    state.check()
    return state
