"""What stands in a group's GROUP_CREATED record.

A MessagePack array of [1, voters, member]: the format, the names of the founders (on a member that
joins: those it asks for the leader), and the id of this log's life, 0 on a founder. Before there
were ids it was the array of the voters alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from random import Random

import msgspec

from warren_raft.errors import StorageError
from warren_raft.types import GroupId, MemberId, Membership, NodeId

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Birth:
    """How a member of a group began; see the module."""

    voters: tuple[NodeId, ...]
    member: MemberId = 0

    def membership(self, own: NodeId) -> Membership:
        """The members before the first entry.

        A joining member does not know them. It is a learner to itself, which asks those it was
        told of the leader, until the log says more.
        """
        if not self.member:
            return Membership(self.voters)
        others = tuple(voter for voter in self.voters if voter != own)
        return Membership(others, (own,)) if others else Membership((own,))


def encode(birth: Birth) -> bytes:
    """The record's data."""
    return msgspec.msgpack.encode((FORMAT, birth.voters, birth.member))


_NOW = msgspec.msgpack.Decoder(tuple[int, tuple[NodeId, ...], MemberId])
_BEFORE = msgspec.msgpack.Decoder(tuple[NodeId, ...])


def decode(group: GroupId, data: bytes) -> Birth:
    """The inverse of `encode`; raises StorageError."""
    try:
        format_, voters, member = _NOW.decode(data)
    except msgspec.ValidationError:
        format_, member = FORMAT, 0
        try:
            voters = _BEFORE.decode(data)
        except msgspec.MsgspecError as error:
            raise _unreadable(group, str(error)) from error
    except msgspec.MsgspecError as error:
        raise _unreadable(group, str(error)) from error
    if format_ != FORMAT:
        raise _unreadable(group, f"format {format_}, this program knows {FORMAT}")
    return Birth(voters, member)


def has_others(group: GroupId, data: bytes) -> bool:
    """Other nodes have the group, too, as far as its beginning tells."""
    birth = decode(group, data)
    return bool(birth.member) or len(birth.voters) > 1


def again(group: GroupId, data: bytes, rng: Random, peers: Iterable[NodeId]) -> bytes:
    """The record's data of a member that has lost its log of that group: it joins, as another.

    peers  are asked for the leader, beside those it knew of
    """
    voters = tuple(sorted({*decode(group, data).voters, *peers}))
    return encode(Birth(voters, rng.getrandbits(64) or 1))


def _unreadable(group: GroupId, why: str) -> StorageError:
    return StorageError(
        f"the beginning of group {group} cannot be read ({why}); start this node with the version "
        "that wrote it, or a newer one"
    )
