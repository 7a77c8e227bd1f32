"""Operators that change the members of queues and drain nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sim.checkers import require
from sim.whole.people import VHOST, Person
from warren_wire.admin import members as values
from warren_wire.errors import Refusal

if TYPE_CHECKING:
    from sim.whole.process import Process
    from sim.whole.world import World

SAFE_SIZE = 3
"""Where a disk may be lost no queue is given fewer members."""


class Registrar(Person):
    """Asks some node for some change; whatever it is refused, it asks for another one."""

    def __init__(self, world: World, number: int) -> None:
        super().__init__(world, number, world.profile.queues[0])
        self.asked: Process | None = None
        self.changed = 0
        self.refused = 0
        self.leaving: str | None = None
        self.finished = False

    def act(self) -> None:
        """One thing at a time."""
        machine = self.world.processes[self.rng.choice(self.world.names)]
        process = machine.running
        free = self.asked is None or self.asked.dead or self.asked.shunned
        if free and process is not None and process.serves:
            self.asked = process
            process.inject(lambda: self.ask(process))
        self.again(300)

    def ask(self, process: Process) -> None:
        """In the node's turn."""
        state = process.broker.definitions.state
        if self.leaving is not None and process.name != self.leaving:
            self.let_go(process, self.leaving)
            return
        if self.world.calm:
            drained = [name for name, node in state.nodes.items() if node.drained]
            self.finished = not drained
            if not drained:
                self.asked = None
                return
            self.world.note("revive", drained[0])
            process.broker.membership.nodes.revive(
                drained[0], self.answer(process, values.NodeStatus)
            )
            return
        actions = [
            self.add,
            self.add,
            self.delete,
            self.delete,
            self.grow,
            self.transfer,
            self.drain,
            self.look,
        ]
        if not self.world.profile.unlucky:
            actions += [self.shrink, self.rebalance, self.replace]
        self.rng.choice(actions)(process)

    def answer(self, process: Process, *kinds: type) -> Callable[[Any], None]:
        """What is called back: once, with a value of those kinds or a refusal."""
        answered = []

        def done(reply: Any) -> None:
            require(not answered, "an operator is answered twice", reply)
            answered.append(reply)
            require(isinstance(reply, (*kinds, Refusal)), "an operator's answer", reply)
            self.world.note("operator", type(reply).__name__)
            self.changed += not isinstance(reply, Refusal)
            self.refused += isinstance(reply, Refusal)
            if self.asked is process:
                self.asked = None

        return done

    def a_queue(self, process: Process) -> Any:
        """Some queue's name, with its members."""
        state = process.broker.definitions.state
        plan = self.rng.choice(self.world.profile.queues)
        queue = state.queue(VHOST, plan.name)
        return plan.name, () if queue is None else queue.nodes

    def a_node(self) -> str:
        """Some node."""
        return str(self.rng.choice(self.world.names))

    def a_place(self, change: str, process: Process) -> tuple[str, str]:
        """Draw a queue and a node for that change, and note them."""
        (queue, _), node = self.a_queue(process), self.a_node()
        self.world.note(change, queue, node)
        return queue, node

    # ------------------------------------------------------------ what may be asked for

    def add(self, process: Process) -> None:
        """A member."""
        queue, node = self.a_place("add", process)
        process.broker.membership.add_member(
            VHOST, queue, node, self.answer(process, values.MembersChanged)
        )

    def delete(self, process: Process) -> None:
        """A member."""
        queue, nodes = self.a_queue(process)
        if self.world.profile.unlucky and len(nodes) <= SAFE_SIZE:
            self.asked = None
            return
        node = self.rng.choice(nodes) if nodes else self.a_node()
        self.world.note("delete", queue, node)
        process.broker.membership.delete_member(
            VHOST, queue, node, self.answer(process, values.MembersChanged)
        )

    def grow(self, process: Process) -> None:
        """Members of every queue on a node."""
        node, strategy = self.a_node(), self.rng.choice(("all", "even"))
        self.world.note("grow", node, strategy)
        process.broker.membership.grow(
            node, strategy, ".*", ".*", self.answer(process, values.Resizing)
        )

    def shrink(self, process: Process) -> None:
        """No member of any queue on a node."""
        node = self.a_node()
        self.world.note("shrink", node)
        process.broker.membership.shrink(node, False, self.answer(process, values.Resizing))

    def rebalance(self, process: Process) -> None:
        """Leaders."""
        process.broker.membership.rebalance(".*", ".*", self.answer(process, values.Rebalanced))

    def transfer(self, process: Process) -> None:
        """A queue's leadership."""
        queue, node = self.a_place("move", process)
        process.broker.membership.transfer_leadership(
            VHOST, queue, node, self.answer(process, values.LeaderMoved)
        )

    def replace(self, process: Process) -> None:
        """A node that came later is to leave again."""
        names = [
            name
            for name in self.world.names[self.world.profile.nodes :]
            if name != process.name and self.world.processes[name].running is not None
        ]
        self.asked = None
        if names:
            self.leaving = self.rng.choice(names)
            self.world.note("is to leave", self.leaving)

    def let_go(self, process: Process, name: str) -> None:
        """As the manual says: take its queues' members away, see that it is not needed, stop it,
        forget it."""
        machine, members = self.world.processes[name], process.broker.membership
        if machine.gone:
            if name not in process.broker.definitions.state.nodes:
                self.leaving = self.asked = None
            else:
                members.nodes.forget(name, self.answer(process, values.Forgetting))
            return
        if self.world.calm:
            self.leaving = self.asked = None  # it may stay
            return
        answered = self.answer(process, values.NodeStatus)
        checked = self.answer(process, values.QuorumCritical)

        def seen(reply: Any) -> None:
            if isinstance(reply, values.NodeStatus) and reply.done:
                node = reply.node
                if not (node.members or node.local_queues or node.moving):
                    members.nodes.quorum_critical(name, judged)
                    return
            answered(reply)

        def judged(reply: Any) -> None:
            checked(reply)
            if self.leaving == name and not self.world.calm:
                if isinstance(reply, values.QuorumCritical) and reply.safe:
                    machine.stop()
                    machine.gone = True
                    self.world.note("gone", name)

        if self.rng.random() < 0.5:
            members.shrink(name, False, self.answer(process, values.Resizing))
        else:
            members.nodes.node_status(name, seen)

    def drain(self, process: Process) -> None:
        """A node, or bring it back."""
        node, nodes = self.a_node(), process.broker.membership.nodes
        call = self.rng.choice((nodes.drain, nodes.revive, nodes.revive))
        self.world.note("maintain", call.__name__, node)
        call(node, self.answer(process, values.NodeStatus))

    def look(self, process: Process) -> None:
        """At a queue, at the nodes, at what would be lost."""
        members, kind = process.broker.membership, self.rng.randrange(3)
        if kind == 0:
            queue, _ = self.a_queue(process)
            members.queue_status(VHOST, queue, self.answer(process, values.QueueMembers))
        elif kind == 1:
            members.nodes.list_nodes(self.answer(process, list))
        else:
            members.nodes.quorum_critical(
                self.a_node(), self.answer(process, values.QuorumCritical)
            )
