"""The handshake by which two nodes prove that they belong to the same cluster.

1. The initiator (the calling side, see `transport`) sends Hello.
2. The acceptor answers with its Hello.
3. The initiator sends Proof: it covers both Hellos and the word "initiator".
4. The acceptor checks it and sends Proof, with the word "acceptor".
5. The initiator checks that and sends WELCOME; from now on both may send any frame.

An authenticated node may still be refused (it was removed from the cluster, or its founders
differ): each side checks the other one's Hello after its proof.

A side that refuses the other one sends Refused with the reason and closes. A node that was removed
ends when it is told so, but only by an acceptor that proves itself in the same message, with the
word "remover". The secret is never sent. A proof is an HMAC-SHA256 with a key derived from the
secret by scrypt (`peer_key`); the nonces of both sides prevent the replay of an old proof, and the
three words prevent the reflection of one's own proof.

The initiator proves itself first, because a proof allows offline guesses of the secret: an attacker
that connects receives none. An attacker that is called in a peer's place (it took over the address,
or controls the network) does receive one; then each guess costs scrypt's time and memory, so that a
secret of a few random words cannot be found, whereas a graphics card tried billions of guesses a
second against a plain HMAC. What follows the handshake is neither signed nor
encrypted: without TLS (`net.tls`) the peers' network must be trusted.

Version: each Hello has the versions of its program (`warren_raft.versions`). A link speaks the
newest one that both have; a node that has none in common, or not that of the cluster, is refused by
name. A later version may append fields to Hello: the proofs cover its bytes as they came.
"""

from __future__ import annotations

import hashlib
import hmac
from functools import lru_cache
from typing import Literal

import msgspec

from warren_raft.errors import PeerError
from warren_raft.types import NodeId
from warren_raft.versions import Versions, remedy, spoken
from warren_wire.quoting import escaped

NONCE_BYTES = 32
NODE_NAME_BYTES_MAX = 255
REASON_CHARACTERS_MAX = 1000
"""Length limit in this node's log of the reason that the other side gives."""


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The sender's identity.

    versions    those of its program
    boot_id     64 random bits, drawn when its process started
    nonce       NONCE_BYTES random bytes, drawn for this connection
    disk        64 random bits, drawn when its data directory was made
    formed      whether its directory belongs to a cluster that exists
    address     (host, port) to connect to; host "": the one that the other side sees
    founders    the nodes that are to form the cluster, sorted; empty: it is formed
    cluster_id  the id of the cluster of that name that it is in; 0: not known
    written     the last write of its log that is on its disk
    vouched     (disk, write, boot id): the last position of the receiver's log known to the sender,
                as the process with that boot id reported it; zeros: not known
    version     the version of the cluster that it is in; 0: not known
    known_as    the receiver's disk when the sender founded the cluster with it; 0: it did not. If
                the receiver has another disk now, what the earlier one held is lost
    """

    versions: Versions
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
    version: int = 0


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """An HMAC-SHA256 with the key derived from the cluster's secret, see `prove`."""

    mac: bytes


class HandshakeRefused(msgspec.Struct, frozen=True, array_like=True):
    """The reason why the other side closes.

    second   another process with this one's directory is connected, and alive (`SecondProcess`)
    removed  this node was removed from the cluster (`NodeRemoved`): the mac of the acceptor's Proof
             with the side "remover", because the node ends for it; empty: it was not
    """

    reason: str
    second: bool = False
    removed: bytes = b""


class PeerRefused(PeerError):
    """A refused connection: the settings of one of the two nodes must change.

    Its text is also sent to the other side.
    """


class SecondProcess(PeerRefused):
    """A refusal because another process with the same directory is connected.

    alive  that process has sent something since this one was first refused
    """

    def __init__(self, reason: str, alive: bool) -> None:
        self.alive = alive
        super().__init__(reason)


class NodeRemoved(PeerRefused):
    """A refusal because the node was removed from the cluster with its disk, for good."""


class CrossedCalls(PeerError):
    """Simultaneous calls: this side's continues, so the other one's is closed without a reason."""


class RefusedByPeer(PeerRefused):
    """A refusal by the other side, with its reason.

    second   see `HandshakeRefused`
    removed  it was refused by a `NodeRemoved`, and the other side has proved itself
    """

    def __init__(self, reason: str, second: bool = False, removed: bool = False) -> None:
        self.second = second
        self.removed = removed
        super().__init__(reason)

    def __str__(self) -> str:
        return f"refused by the peer: {escaped(str(self.args[0])[:REASON_CHARACTERS_MAX])}"


Side = Literal["initiator", "acceptor", "remover"]

SCRYPT_N = 1 << 15
SCRYPT_R = 8
SCRYPT_BYTES_MAX = 64 << 20
"""With N and r: 32 MiB and about 80 ms per guess of the secret, and once per process here."""


@lru_cache(maxsize=16)
def peer_key(secret: bytes, cluster: str) -> bytes:
    """Derive the key of this cluster's proofs; slow on purpose, so done before any connection.

    The cluster's name is the salt: a precomputed table is valid for one name only.
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


HelloBytes = Hello | msgspec.Raw
"""A Hello, or the bytes of one that was received."""


def prove(key: bytes, side: Side, initiator: HelloBytes, acceptor: HelloBytes) -> Proof:
    """Return the proof of `side`; key: `peer_key`."""
    said = msgspec.msgpack.encode(("warren peer", side, initiator, acceptor))
    return Proof(hmac.digest(key, said, "sha256"))


def check_proof(
    proof: Proof, key: bytes, side: Side, initiator: HelloBytes, acceptor: HelloBytes, other: Hello
) -> None:
    """Raise PeerRefused unless the proof shows that `side`, which sent `other`, has the secret."""
    expected = prove(key, side, initiator, acceptor)
    if not hmac.compare_digest(proof.mac, expected.mac):
        raise PeerRefused(
            f"node {other.node!r} does not have the secret of cluster {other.cluster!r}; give all "
            "members the same cluster secret"
        )


def check_names(hello: Hello) -> None:
    """Raise PeerRefused unless the names have the size of names: they come from a stranger."""
    for what, name in (("node", hello.node), ("cluster", hello.cluster)):
        size = len(name.encode())
        if not 0 < size <= NODE_NAME_BYTES_MAX:
            raise PeerRefused(f"a {what}'s name of {size} bytes, not 1 to {NODE_NAME_BYTES_MAX}")


def check_hello(hello: Hello, own: Hello) -> None:
    """Raise PeerRefused unless the two can belong to one cluster."""
    if not spoken(hello.versions, own.versions):
        raise PeerRefused(
            f"node {hello.node!r} has {hello.versions}, node {own.node!r} has {own.versions}; run "
            "releases that have one in common: upgrade through each release between them"
        )
    for one, other in ((hello, own), (own, hello)):
        if other.version and other.version not in one.versions:
            raise PeerRefused(
                f"node {one.node!r} has {one.versions}, and the cluster of node {other.node!r} has "
                f"version {other.version}; {remedy(one.versions, other.version)}"
            )
    if hello.cluster != own.cluster:
        raise PeerRefused(
            f"node {hello.node!r} is of cluster {hello.cluster!r}, node {own.node!r} of "
            f"{own.cluster!r}; correct the peers' addresses or the cluster's name"
        )
    if hello.node == own.node:
        raise PeerRefused(
            f"two nodes have the name {own.node!r}, or one has its own address as a peer's; "
            "names must differ"
        )
    if len(hello.nonce) != NONCE_BYTES:
        raise PeerRefused(f"a nonce of {len(hello.nonce)} bytes, not {NONCE_BYTES}")
