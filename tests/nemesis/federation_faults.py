"""What is done to federated clusters and to the relays between them, drawn from a seed."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import partial

from live.test_shovel import worker_pids
from nemesis.federation_world import PREFETCH, QUEUES, Fault, Federation
from warren.admin import Admin
from warren.errors import WarrenError

CUT_S = (0.5, 6.0)
DOWN_S = (0.0, 5.0)
PAUSE_S = (0.5, 6.0)
MOMENT_S = (0.2, 4.0)
"""Between the steps of one fault."""


def cut(run: Federation) -> None:
    """Connections end, and new ones are made at once."""
    what, relays = run.some_relays()
    run.say(f"cut: {what}")
    for each in relays:
        each.cut()


def refuse(run: Federation) -> None:
    """Connections end, and new ones are refused for a while."""
    what, relays = run.some_relays()
    run.say(f"refuse: {what}")
    for each in relays:
        each.refusing = True
        each.cut()
    run.wait(CUT_S)
    for each in relays:
        each.refusing = False


def silence(run: Federation) -> None:
    """What the upstream says is lost, while what it is told arrives; then the connections end."""
    what, relays = run.some_relays()
    run.say(f"silence: {what}")
    for each in relays:
        each.silent = True
    run.wait(CUT_S)
    for each in relays:
        each.cut()
        each.silent = False


def kill(run: Federation) -> None:
    """A node dies with the links that it runs."""
    cluster, node = run.some_node()
    run.say(f"kill -9 {cluster.name} node-{node}")
    run.hit(cluster)
    cluster.nodes.kill(node)
    run.wait(DOWN_S)
    cluster.nodes.start(node)


def kill_cluster(run: Federation) -> None:
    """All nodes of a cluster die."""
    cluster = run.chance.choice(run.clusters)
    run.say(f"kill -9 all of {cluster.name}")
    run.hit(cluster)
    for node in range(len(cluster.nodes)):
        cluster.nodes.kill(node)
    run.wait(DOWN_S)
    for node in range(len(cluster.nodes)):
        cluster.nodes.start(node)


def kill_links(run: Federation) -> None:
    """The processes of links die, and their nodes live."""
    cluster, node = run.some_node()
    pid = cluster.nodes.pid(node)
    found = worker_pids(pid) if pid else []
    run.say(f"kill -9 {len(found)} links of {cluster.name} node-{node}")
    for each in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)


def pause(run: Federation) -> None:
    """A node hangs, and its links, which are processes of their own, do not."""
    cluster, node = run.some_node()
    run.say(f"SIGSTOP {cluster.name} node-{node}")
    run.hit(cluster)
    cluster.nodes.pause(node)
    run.wait(PAUSE_S)
    cluster.nodes.resume(node)


def pause_links(run: Federation) -> None:
    """Links hang while their nodes live."""
    cluster, node = run.some_node()
    pid = cluster.nodes.pid(node)
    found = worker_pids(pid) if pid else []
    run.say(f"SIGSTOP {len(found)} links of {cluster.name} node-{node}")
    for how in (signal.SIGSTOP, signal.SIGCONT):
        for each in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, how)
        if how == signal.SIGSTOP:
            run.wait(PAUSE_S)


def change(run: Federation) -> None:
    """The upstreams of a cluster get another prefetch-count, so all its links begin again."""
    here = run.chance.randrange(len(run.clusters))
    prefetch = run.chance.choice((1, 7, PREFETCH, 1000))
    run.say(f"prefetch-count of c{here}'s upstreams is {prefetch}")
    with contextlib.suppress(WarrenError):
        run.configure(here, prefetch)


def change_policy(run: Federation) -> None:
    """A queue's upstreams are taken away, or are others, and are those of before again.

    Its links are silenced or refused all the while, or are so until shortly before or after it is
    federated again: a link that is to end cannot tell the upstream so, which holds for it what it
    has sent, and the next one takes that over.
    """
    here = run.chance.randrange(len(run.clusters))
    queue = run.chance.choice(run.federated(here))
    what, relays = run.some_relays(here)
    silent, gone, healed_first = (run.chance.random() < 0.5 for _ in range(3))
    run.say(
        f"{'silence' if silent else 'refuse'}: {what}, meanwhile {queue} of c{here} "
        f"{'has no policy' if gone else 'has other upstreams'}, "
        f"{'again after' if healed_first else 'again before'} the relays"
    )
    for each in relays:
        each.silent, each.refusing = silent, not silent
        if not silent:
            each.cut()
    run.wait(MOMENT_S)
    run.unfederated.add((here, queue))
    with contextlib.suppress(WarrenError):
        if gone:
            with run.clusters[here].admin() as admin:
                Admin(admin).policies.delete("/", queue)
        else:
            run.set_policy(here, queue, {"federation-upstream-pattern": "^c"})
    run.wait(MOMENT_S)

    def relays_heal() -> None:
        for relay in relays:
            if silent:
                relay.cut()
            relay.silent = relay.refusing = False

    def federated_again() -> None:
        run.ask(f"policy {queue} of c{here}", partial(run.set_policy, here, queue))
        run.unfederated.discard((here, queue))

    steps = [relays_heal, federated_again]
    for step in steps if healed_first else reversed(steps):
        step()
        run.wait(MOMENT_S)


def silence_kill(run: Federation) -> None:
    """The upstream's leader dies while a link hears nothing of it: no answer, and no end either."""
    cluster = run.chance.choice(run.clusters)
    there = run.clusters.index(cluster)
    leader = cluster.nodes.leader_of(run.chance.choice(QUEUES))
    node = run.chance.randrange(len(cluster.nodes)) if leader is None else leader
    relays = [each for (_, to), found in run.relays.items() if to == there for each in found]
    run.say(f"silence: {len(relays)} relays to {cluster.name}, kill -9 {cluster.name} node-{node}")
    for each in relays:
        each.silent = True
    run.wait(MOMENT_S)
    run.hit(cluster)
    cluster.nodes.kill(node)
    run.wait(DOWN_S)
    cluster.nodes.start(node)
    for each in relays:
        each.cut()
        each.silent = False


def full_kill(run: Federation) -> None:
    """A node's disk has no byte left when it dies, and when it starts again."""
    cluster, node = run.some_node()
    run.say(f"{cluster.name} node-{node}'s disk is full, kill -9 {cluster.name} node-{node}")
    run.hit(cluster)
    cluster.nodes.disk(node).fill()
    run.wait(MOMENT_S)
    cluster.nodes.kill(node)
    run.wait(DOWN_S)
    cluster.nodes.start(node)
    run.wait(PAUSE_S)
    run.look_for_dead(cluster.nodes, f"{cluster.name} ")
    cluster.nodes.mend_disks()


FAULTS: dict[str, Fault] = {
    "cut": cut,
    "refuse": refuse,
    "silence": silence,
    "kill": kill,
    "kill-cluster": kill_cluster,
    "kill-links": kill_links,
    "pause": pause,
    "pause-links": pause_links,
    "change": change,
    "change-policy": change_policy,
    "silence-kill": silence_kill,
    "full-kill": full_kill,
}
