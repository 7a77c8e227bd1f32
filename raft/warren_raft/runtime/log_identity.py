"""The data of a group's GROUP_CREATED record.

A MessagePack array of [1, voters, member]: the format, the names of the founders (on a member that
joins: those it asks for the leader), and the member id of this log, 0 on a founder.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

import msgspec

from warren_raft.errors import StorageError
from warren_raft.types import GroupId, MemberId, Membership, NodeId
from warren_wire.undecodable import UNDECODABLE

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Birth:
    """The initial identity of a member of a group; see the module."""

    voters: tuple[NodeId, ...]
    member: MemberId = 0

    def membership(self, own: NodeId) -> Membership:
        """Return the members before the first entry.

        A joining member does not know them. It considers itself a learner, which asks the nodes it
        was given for the leader, until it receives a membership.
        """
        if not self.member:
            return Membership(self.voters)
        others = tuple(voter for voter in self.voters if voter != own)
        return Membership(others, (own,)) if others else Membership((own,))


def encode(birth: Birth) -> bytes:
    """Encode the record's data."""
    return msgspec.msgpack.encode((FORMAT, birth.voters, birth.member))


_DECODER = msgspec.msgpack.Decoder(tuple[int, tuple[NodeId, ...], MemberId])


def decode(group: GroupId, data: bytes) -> Birth:
    """Invert `encode`; raises StorageError."""
    try:
        format_, voters, member = _DECODER.decode(data)
    except UNDECODABLE as error:
        raise _unreadable(group, str(error)) from error
    if format_ != FORMAT:
        raise _unreadable(group, f"format {format_}, this program reads {FORMAT}")
    return Birth(voters, member)


def has_others(group: GroupId, data: bytes) -> bool:
    """Return whether the record names other nodes as members of the group."""
    birth = decode(group, data)
    return bool(birth.member) or len(birth.voters) > 1


def again(group: GroupId, data: bytes, rng: Random, peers: Iterable[NodeId]) -> bytes:
    """Return the record of a member that lost its log of the group and joins under a new id.

    peers  are asked for the leader, beside those in the old record
    """
    voters = tuple(sorted({*decode(group, data).voters, *peers}))
    return encode(Birth(voters, rng.getrandbits(64) or 1))


def _unreadable(group: GroupId, why: str) -> StorageError:
    return StorageError(
        f"the first record of group {group} cannot be read ({why}); start this node with the "
        "version that wrote it, or a newer one"
    )
