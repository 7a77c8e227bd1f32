"""A node for the client's tests: the real 1.0 connection on a loopback socket, a small memory
behind it.

It reads in pieces of random size from a seed, so that every frame is cut somewhere.
"""

from __future__ import annotations

import random
import selectors
import socket
import threading
from collections import defaultdict
from dataclasses import dataclass, field

from tests.patience import PATIENCE_S
from warren_broker.clients10 import connection_requests as asks
from warren_broker.clients10.connection import Connection10
from warren_wire.admin import claims as claim_resource
from warren_wire.admin import exchanges as binding_resource
from warren_wire.admin import overview, requests
from warren_wire.admin import queues as queue_resource
from warren_wire.block.block import Block
from warren_wire.errors import (
    ClaimNotOpen,
    EpochSuperseded,
    LoginRefused,
    NoRoute,
    NotFound,
    Refusal,
    StageMissing,
    Unavailable,
    unknown_vhost,
)


@dataclass
class FakeQueue:
    """Messages as single blocks with their place in the log."""

    name: str
    ready: list[tuple[int, bytes]] = field(default_factory=list)
    claims: dict[tuple[str, int], list[tuple[int, bytes]]] = field(default_factory=dict)
    epochs: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    settled: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    stages: dict[tuple[str, str, int, int, int], dict[int, bytes]] = field(default_factory=dict)
    published: dict[tuple[str, str, int], int] = field(default_factory=dict)
    next_index: int = 1

    def add(self, block: bytes) -> None:
        """Every message of a block becomes ready."""
        decoded = Block.decode(block)
        for i in range(decoded.count):
            self.ready.append((self.next_index, decoded.slice(i, i + 1)))
            self.next_index += 1


class FakeCluster:
    """What the fake nodes share.

    delay     requests that are kept unanswered until `release` (the test holds them back)
    refuse    the next requests of a type are answered with this instead
    script    answers for requests about members, one after the other; the last one stays
    """

    def __init__(self) -> None:
        self.queues: dict[str, FakeQueue] = {}
        self.refuse: dict[type, list[Refusal]] = defaultdict(list)
        self.hold: set[type] = set()
        self.script: dict[type, list[asks.AnyAnswer]] = {}
        self.seen: list[asks.AnyRequest] = []
        self.pieces_per_answer = 2
        self.epoch = 0

    def answer(self, request: asks.AnyRequest) -> asks.AnyAnswer:
        """The result of a request."""
        self.seen.append(request)
        if self.refuse[type(request)]:
            return self.refuse[type(request)].pop(0)
        answers = self.script.get(type(request))
        if answers:
            return answers.pop(0) if len(answers) > 1 else answers[0]
        try:
            return getattr(self, "_" + type(request).__name__.removesuffix("Request"))(request)
        except Refusal as refusal:
            return refusal

    def queue(self, name: str) -> FakeQueue:
        """A queue that must be there."""
        if name not in self.queues:
            raise NotFound(f"no queue '{name}' in vhost '/'")
        return self.queues[name]

    def _Login(self, request):
        return asks.LoggedIn() if request.password == "guest" else LoginRefused("no")

    def _OpenVhost(self, request):
        return (
            asks.VhostOpened("fake-1", "fake")
            if request.vhost in ("/", "a/b")
            else unknown_vhost(request.vhost)
        )

    def _DeclareQueue(self, request):
        created = request.name not in self.queues
        self.queues.setdefault(request.name, FakeQueue(request.name))
        return queue_resource.DeclaredQueue(
            created, self._GetQueue(queue_resource.GetQueueRequest(request.name))
        )

    def _GetQueue(self, request):
        queue = self.queue(request.name)
        readers = tuple(
            queue_resource.ReaderInfo(
                name, epoch, queue.settled[name], sum(1 for r, _ in queue.claims if r == name), 1
            )
            for name, epoch in queue.epochs.items()
        )
        return queue_resource.QueueInfo(
            queue.name,
            "/",
            "quorum",
            True,
            False,
            False,
            "fake-1",
            ("fake-1",),
            {"x-a": 1},
            messages_ready=len(queue.ready),
            by_priority={4: len(queue.ready)},
            readers=readers,
        )

    def _ListQueues(self, request):
        names = [name for name in sorted(self.queues) if name > request.after]
        return requests.Listed(
            tuple(
                self._GetQueue(queue_resource.GetQueueRequest(name))
                for name in names[: request.count or None]
            )
        )

    def _DeleteQueue(self, request):
        queue = self.queues.pop(request.name, None)
        return requests.MessagesCounted(len(queue.ready) if queue else 0)

    def _GetOverview(self, request):
        return overview.Overview(
            "fake-1", "fake", "0", (overview.OverviewNode("fake-1", "x", True),)
        )

    def _ListBindings(self, request):
        return requests.Listed(
            (
                binding_resource.BindingInfo(
                    "ex;1", request.queue or "q", "queue", "k=;", {"x": [1, "é"]}
                ),
            )
        )

    def _Unbind(self, request):
        return requests.Performed()

    _Bind = _DeclareExchange = _DeleteExchange = _Unbind

    # claims

    def _RegisterReader(self, request):
        queue = self.queue(request.queue)
        queue.epochs[request.reader] += 1
        return claim_resource.ReaderRegistered(
            queue.epochs[request.reader],
            queue.settled[request.reader],
            queue.epochs[request.reader],
        )

    def _fence(self, queue, request):
        if request.epoch != queue.epochs[request.reader]:
            raise EpochSuperseded(
                f"reader {request.reader!r}: epoch {request.epoch} is not the newest"
            )

    def _OpenClaim(self, request):
        queue = self.queue(request.queue)
        self._fence(queue, request)
        key = request.reader, request.number
        if key not in queue.claims:
            if request.number <= queue.settled[request.reader]:
                raise ClaimNotOpen(
                    f"claim {request.number} of reader {request.reader!r} is not open"
                )
            taken = queue.ready[: request.max_messages]
            if not taken:
                if not request.keep_empty:
                    return claim_resource.ClaimOpened(request.number, 0, 0, False)
            del queue.ready[: len(taken)]
            queue.claims[key] = taken
        size_bytes = sum(len(b) for _, b in queue.claims[key])
        return claim_resource.ClaimOpened(request.number, len(queue.claims[key]), size_bytes, True)

    def _SettleClaims(self, request):
        queue = self.queue(request.queue)
        self._fence(queue, request)
        keys = [k for k in queue.claims if k[0] == request.reader and k[1] <= request.number]
        count = sum(len(queue.claims.pop(key)) for key in keys)
        queue.settled[request.reader] = max(queue.settled[request.reader], request.number)
        return requests.MessagesCounted(count)

    def _ReleaseClaim(self, request):
        queue = self.queue(request.queue)
        if request.epoch != -1:
            self._fence(queue, request)
        taken = queue.claims.pop((request.reader, request.number), [])
        queue.ready[:0] = taken
        return requests.MessagesCounted(len(taken))

    def _RenewClaims(self, request):
        self._fence(self.queue(request.queue), request)
        return requests.Performed()

    def _FetchClaim(self, request):
        source = request.source
        claim = self.queue(source.queue).claims.get((source.reader, source.number))
        if claim is None:
            raise ClaimNotOpen(f"claim {source.number} of reader {source.reader!r} is not open")
        taken = claim[source.first : source.last][: self.pieces_per_answer]
        return asks.Fetched(tuple(asks.Piece(((i, 0, 0, 1, 2),), b) for i, b in taken), len(taken))

    def _Browse(self, request):
        ready = self.queue(request.queue).ready
        start = request.cursor or 0
        taken = ready[start : start + min(request.max_messages, self.pieces_per_answer)]
        end = start + len(taken)
        pieces = tuple(asks.Piece(((i, 0, 0, 0, 0),), b) for i, b in taken)
        return asks.Fetched(pieces, len(taken), end if end < len(ready) else None)

    # publishing

    def _route(self, block: bytes) -> list[str]:
        names = sorted({key.decode() for _, key in Block.decode(block).routes})
        return names if all(name in self.queues for name in names) else []

    def _DrawEpoch(self, request):
        self.epoch += 1
        return claim_resource.EpochDrawn(self.epoch)

    def _StageBlock(self, request):
        names = self._route(request.block)
        for name in names:
            of = request.stage
            key = of.sink, of.run, of.batch, of.partition, of.attempt
            stage = self.queues[name].stages.setdefault(key, {})
            if not stage or request.seq > max(stage):
                stage[request.seq] = bytes(request.block)
        return asks.Staged(tuple(names)) if names else NoRoute("no queue for it")

    def _PublishBlock(self, request):
        names = [request.queue] if request.queue else self._route(request.block)
        if request.queue:
            self.queue(request.queue)
        for name in names:
            self.queues[name].add(bytes(request.block))
        return asks.Published() if names else NoRoute("no queue for it")

    def _PublishBatch(self, request):
        count = 0
        batch = request.sink, request.run, request.batch
        for name, attempts in request.queues:
            queue = self.queue(name)
            if batch not in queue.published:
                before = len(queue.ready)
                for partition, attempt, blocks in attempts:
                    stage = queue.stages.pop((*batch, partition, attempt), {})
                    if len(stage) != blocks:
                        raise StageMissing(f"attempt {attempt}: {len(stage)} blocks, not {blocks}")
                    for seq in sorted(stage):
                        queue.add(stage[seq])
                queue.published[batch] = len(queue.ready) - before
            count += queue.published[batch]
        return requests.MessagesCounted(count)

    def _DropBatch(self, request):
        for name, attempts in request.queues:
            for each in attempts:
                key = request.sink, request.run, request.batch, *each
                self.queue(name).stages.pop(key, None)
        return requests.Performed()


class FakeNode:
    """One listener on loopback; `kill` closes it and every connection at once.

    die_after  requests after which, instead of an answer, every connection is cut (None: never)
    """

    def __init__(self, cluster: FakeCluster, seed: int = 0, port: int = 0) -> None:
        self.cluster = cluster
        self.die_after: dict[type, int] = {}
        self.die_before_apply = False
        self.silent = False
        self.connections: dict[socket.socket, Connection10] = {}
        self.failures: list[str] = []
        self._random = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", port))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self._stopping = False
        self._wakes, self._waker = socket.socketpair()
        self._thread = threading.Thread(
            target=self._serve, name=f"fake node {self.port}", daemon=True
        )
        self._thread.start()

    @property
    def host(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self.port}"

    def kill(self) -> None:
        """Stop serving."""
        if not self._stopping:
            self._stopping = True
            self._waker.send(b"x")
            self._thread.join(PATIENCE_S)
            assert not self._thread.is_alive()
            self._wakes.close()  # here: the thread may see `_stopping` before it is woken
            self._waker.close()

    def _serve(self) -> None:
        selector = selectors.DefaultSelector()
        selector.register(self._listener, selectors.EVENT_READ)
        selector.register(self._wakes, selectors.EVENT_READ)
        while not self._stopping:
            for key, _ in selector.select(1.0):
                if key.fileobj is self._listener:
                    accepted, _ = self._listener.accept()
                    self.connections[accepted] = Connection10(container="fake")
                    selector.register(accepted, selectors.EVENT_READ)
                elif key.fileobj in self.connections and not self._turn(key.fileobj):
                    self._cut(selector, key.fileobj)
            if self.die_before_apply:
                self.die_before_apply = False
                for each in list(self.connections):
                    self._cut(selector, each)
        for each in list(self.connections):
            self._cut(selector, each)
        self._listener.close()
        selector.close()

    def _cut(self, selector: selectors.BaseSelector, which: socket.socket) -> None:
        selector.unregister(which)
        connection = self.connections.pop(which)
        self.failures.append(connection.failure)
        connection.free()
        which.close()

    def _turn(self, which: socket.socket) -> bool:
        """Read some, answer all; False: the connection is over."""
        connection = self.connections[which]
        try:
            data = which.recv(self._random.choice((1, 3, 17, 1000, 65536, 1 << 20)))
        except OSError:
            return False
        if not data:
            connection.end_of_input()
            return False
        connection.receive(data)
        if self.silent:
            return True
        while requests := connection.take_requests():
            for request in requests:
                left = self.die_after.get(type(request))
                if left is not None:
                    self.die_after[type(request)] = left - 1
                    if left == 0:
                        del self.die_after[type(request)]
                        self.cluster.answer(request)  # carried out, but the answer is lost
                        self.die_before_apply = True
                        return True
                connection.answer(request.token, self.cluster.answer(request))
        try:
            which.setblocking(True)
            while pieces := connection.take_output(1 << 16):
                for piece in pieces:
                    which.sendall(piece)
                while requests := connection.take_requests():
                    for request in requests:
                        connection.answer(request.token, self.cluster.answer(request))
        except OSError:
            return False
        return not connection.done


__all__ = ["FakeCluster", "FakeNode", "FakeQueue", "Unavailable"]
