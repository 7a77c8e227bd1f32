"""How two nodes convince each other that they are of one cluster.

1. The initiator (the calling side, see `transport`) sends Hello.
2. The acceptor answers Hello.
3. The initiator sends Proof: it covers both Hellos and the word "initiator".
4. The acceptor checks it and sends Proof, with the word "acceptor".
5. The initiator checks that and sends WELCOME; both may send everything now.

A node that has proved itself may still be refused (it was removed from the cluster, it is to form
another one): each side judges the other one's Hello after its proof.

A side that is not satisfied sends Refused with the reason and closes. The secret is never sent. A
proof is an HMAC-SHA256 with a key derived from the secret by scrypt (`peer_key`); nonces of both
keep an old proof from being used again, the two words keep one's own proof from being sent back.

Who calls proves itself first, for a proof is something to try guesses of the secret on, at home, as
many as one likes: a stranger who connects gets none. Who is called in a peer's place (its address
was taken over, the network is not ours) does get one; then each guess costs scrypt's time and
memory, so that a secret of a few random words is out of reach, where with the bare HMAC of peer
protocol 2 a graphics card tried billions a second. What follows the handshake is neither signed nor
encrypted: the peers' network is to be trusted, or tunnelled.

Version: the order and the key are those since peer protocol 3; protocol 4 (`wire.PROTOCOL`) has
positions (`Hello.written`, `vouched`). A node of an earlier protocol is refused, by name, and
refuses: to speak protocol 2, too, would give strangers the old proof.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache
from typing import Literal

import msgspec

from warren_raft.errors import PeerError
from warren_raft.quoting import escaped
from warren_raft.runtime.net.codec import PROTOCOL
from warren_raft.types import NodeId

NONCE_BYTES = 32
REASON_CHARACTERS_MAX = 1000
"""Of what the other side gives as its reason, in this node's log."""


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The speaker's identity.

    boot_id     64 random bits, drawn when its process started
    nonce       NONCE_BYTES random bytes, drawn for this connection
    disk        64 random bits, drawn when its data directory was made
    formed      its directory belongs to a cluster that exists
    address     (host, port) where it is called; host "": as the other side sees it
    founders    the nodes that are to form the cluster, sorted; empty: it is formed
    cluster_id  which cluster of that name it is in; 0: not known
    written     the last write of its log that is on its disk
    vouched     (disk, write, boot id): so far the log of whom it speaks to had come, as that life
                of it had told; zeros: it does not know
    known_as    the disk under which the speaker has founded the cluster with whom it speaks to;
                0: it has not. If that is another disk, what it held is lost
    """

    protocol: int
    cluster: str
    node: NodeId
    boot_id: int
    nonce: bytes
    disk: int = 0
    formed: bool = False
    address: tuple[str, int] = ("", 0)
    founders: tuple[NodeId, ...] = ()
    cluster_id: int = 0
    known_as: int = 0
    written: int = 0
    vouched: tuple[int, int, int] = (0, 0, 0)


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """HMAC-SHA256 by the key of the cluster's secret, see `prove`."""

    mac: bytes


class HandshakeRefused(msgspec.Struct, frozen=True, array_like=True):
    """Why the other side closes.

    second  another process with this one's directory is connected (`SecondProcess`)
    """

    reason: str
    second: bool = False


class PeerRefused(PeerError):
    """A connection that cannot be: the settings of one of the two nodes must change.

    Its text is sent to the other side too.
    """


class SecondProcess(PeerRefused):
    """A process of a node beside another one that has the same directory, and is connected."""


class CrossedCalls(PeerError):
    """Both called at once; this side's call continues, so the other one's ends without a word."""


class RefusedByPeer(PeerRefused):
    """The other side closed, and said why.

    second  see `HandshakeRefused`
    """

    def __init__(self, reason: str, second: bool = False) -> None:
        self.second = second
        super().__init__(reason)

    def __str__(self) -> str:
        return f"refused by the peer: {escaped(str(self.args[0])[:REASON_CHARACTERS_MAX])}"


Side = Literal["initiator", "acceptor"]

SCRYPT_N = 1 << 15
SCRYPT_R = 8
SCRYPT_BYTES_MAX = 64 << 20
"""With N and r, 32 MiB and about 80 ms for each guess of the secret, and once per process here."""


@lru_cache(maxsize=16)
def peer_key(secret: bytes, cluster: str) -> bytes:
    """The key of this cluster's proofs; slow on purpose, so it is derived before any connection.

    The cluster's name is the salt: a table of guesses serves for one name only.
    """
    return hashlib.scrypt(
        secret,
        salt=b"warren peer\0" + cluster.encode(),
        n=SCRYPT_N,
        r=SCRYPT_R,
        p=1,
        maxmem=SCRYPT_BYTES_MAX,
        dklen=32,
    )


def prove(key: bytes, side: Side, initiator: Hello, acceptor: Hello) -> Proof:
    """What `side` shows to the other one; key: `peer_key`."""
    said = msgspec.msgpack.encode(("warren peer", side, initiator, acceptor))
    return Proof(hmac.digest(key, said, "sha256"))


def check_proof(proof: Proof, key: bytes, side: Side, initiator: Hello, acceptor: Hello) -> None:
    """Raises PeerRefused unless `side` knows the secret."""
    expected = prove(key, side, initiator, acceptor)
    if not hmac.compare_digest(proof.mac, expected.mac):
        other = initiator if side == "initiator" else acceptor
        raise PeerRefused(
            f"node {other.node!r} does not have the secret of cluster {other.cluster!r}; give all "
            "members the same cluster secret"
        )


def check_hello(hello: Hello, own: Hello) -> None:
    """Raises PeerRefused unless the two can be of one cluster."""
    if hello.protocol != PROTOCOL:
        raise PeerRefused(
            f"node {hello.node!r} speaks peer protocol {hello.protocol}, node {own.node!r} "
            f"speaks {PROTOCOL}; run versions that have one in common"
        )
    if hello.cluster != own.cluster:
        raise PeerRefused(
            f"node {hello.node!r} is of cluster {hello.cluster!r}, node {own.node!r} of "
            f"{own.cluster!r}; correct the peers' addresses or the cluster's name"
        )
    if hello.node == own.node:
        raise PeerRefused(
            f"two nodes bear the name {own.node!r}, or one was told its own address as a peer's; "
            "names must differ"
        )
    if len(hello.nonce) != NONCE_BYTES:
        raise PeerRefused(f"a nonce of {len(hello.nonce)} bytes, not {NONCE_BYTES}")
