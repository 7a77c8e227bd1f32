"""Throughput and failover under the load generator, one cluster at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench import generator
from bench.peers import Peer, peers
from bench.report import show
from bench.rounds import Plan, measured, span, turns

SIZES = (100, 1024)


def throughput(plan: Plan) -> list[dict[str, Any]]:
    """Run a saturating publisher and a consumer; every size on every cluster, A B A B."""
    program = generator.find()
    found, notes = peers(plan.only, plan.tls, plan.other)
    results = []
    for turn, peer in turns(plan, found):
        with peer:
            for size in SIZES:
                report = generator.run(
                    program,
                    "pubsub",
                    targets=peer.targets(),
                    queue=f"bench-{size}",
                    size=size,
                    window=1000,
                    prefetch=1000,
                    ack_every=100,
                    time=plan.seconds,
                    warmup=plan.warmup,
                    delete_after=True,
                    watch=",".join(map(str, peer.pids())),
                    tls=peer.tls,
                )
                print(
                    f"  round {turn + 1}  {peer.name:<16} {size:>5} B  "
                    f"{report['consumed_per_s']:>10,.0f} msg/s  "
                    f"p99 {report['confirm_ms']['p99']:.1f} ms  "
                    f"cores {report['cpu']['watched_cores']:.2f}, "
                    f"others {report['cpu']['other_cores']:.2f}  "
                    f"{generator.faults(report)}",
                    flush=True,
                )
                results.append({"peer": peer.name, "round": turn, **report})
    show("Throughput: 1 publisher, 1 consumer, 3 nodes, fsync on", _rows(results), notes)
    return results


def _rows(results: list[dict[str, Any]]) -> list[dict[str, str]]:
    rows = []
    for size in SIZES:
        for name in dict.fromkeys(one["peer"] for one in results):
            of_peer = [one for one in results if (one["peer"], one["size"]) == (name, size)]
            per_message = [
                one["cpu"]["watched_cores"] / one["consumed_per_s"] * 1e6
                for one in of_peer
                if one["consumed_per_s"]
            ]
            faster, p99 = _ratios(results, name, size)
            rows.append(
                {
                    "bytes": str(size),
                    "cluster": name,
                    "msg/s": span([one["consumed_per_s"] for one in of_peer], ",.0f"),
                    "confirm p50 ms": span([one["confirm_ms"]["p50"] for one in of_peer]),
                    "confirm p99 ms": span([one["confirm_ms"]["p99"] for one in of_peer]),
                    "CPU µs/msg": span(per_message),
                    "MB of 3 nodes": span([_megabytes(one) for one in of_peer], ",.0f"),
                    "Warren is faster": faster,
                    "its p99": p99,
                    "found wrong": "; ".join(filter(None, map(generator.faults, of_peer)))
                    or "nothing",
                }
            )
    return rows


def _ratios(results: list[dict[str, Any]], name: str, size: int) -> tuple[str, str]:
    """Divide Warren's throughput and p99 by a peer's of the same round; empty for Warren."""
    ours = {one["round"]: one for one in results if (one["peer"], one["size"]) == ("Warren", size)}
    pairs = [
        (ours[one["round"]], one)
        for one in results
        if (one["peer"], one["size"]) == (name, size) and one["round"] in ours
    ]
    if name == "Warren" or not pairs:
        return "", ""
    faster = [warren["consumed_per_s"] / peer["consumed_per_s"] for warren, peer in pairs]
    p99 = [warren["confirm_ms"]["p99"] / peer["confirm_ms"]["p99"] for warren, peer in pairs]
    return span(faster) + " x", span(p99, ".2f") + " x"


def _megabytes(report: dict[str, Any]) -> float:
    return float(sum(node["rss_mb"] for node in report["cpu"]["watched"]))


def failover(plan: Plan) -> list[dict[str, Any]]:
    """Kill the queue's leader (SIGKILL) under load; the longest time without a confirm."""
    program = generator.find()
    found, notes = peers(plan.only)
    results = measured(plan, found, lambda peer: _one_kill(program, peer, plan))
    rows = [
        {
            "cluster": one["peer"],
            "longest confirm gap ms": f"{one['longest_confirm_gap_ms']:.0f}",
            "longest delivery gap ms": f"{one['longest_delivery_gap_ms']:.0f}",
            "confirmed": f"{one['confirmed']:,}",
            "lost": str(one["lost"]),
            "duplicates": str(one["duplicates"]),
        }
        for one in results
    ]
    show("Failover: leader killed with -9 under load, clients on the other nodes", rows, notes)
    return results


def _one_kill(program: Path, peer: Peer, plan: Plan) -> dict[str, Any]:
    queue = "failover"
    targets = peer.targets()
    generator.run(program, "declare", targets=targets, queue=queue)
    leader = peer.leader(queue)
    others = ",".join(t for i, t in enumerate(targets.split(",")) if i != leader)
    return generator.run(
        program,
        "pubsub",
        targets=others,
        queue=queue,
        size=100,
        no_declare=True,
        reconnect=True,
        time=plan.seconds + 5,
        warmup=1,
        kill_pid=peer.pids()[leader],
        kill_at=plan.warmup + 1,
        ack_every=1,
        prefetch=200,
    )
