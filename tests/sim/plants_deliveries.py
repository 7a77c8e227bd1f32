"""Bugs in what is on its way to consumers on other nodes, to plant in whole nodes; see `plants`."""

from __future__ import annotations

from typing import Any

from sim.planting import Replacement, by_name
from warren_broker.cluster.remote_deliveries import DeliveryWindows, RemoteDeliveries


def what_was_taken_is_not_reported() -> list[Replacement]:
    """The window to another node is used up once, for good."""
    return [(RemoteDeliveries, "_on_delivered", RemoteDeliveries._take)]


def what_waits_is_forgotten() -> list[Replacement]:
    """What does not fit into the window is not sent later."""
    send = DeliveryWindows._send_piece

    def once(self: DeliveryWindows, node: str, window: Any, key: Any, lane: Any) -> bool:
        sent = send(self, node, window, key, lane)
        lane.clear()
        return sent

    return [(DeliveryWindows, "_send_piece", once)]


PLANTS = by_name(what_was_taken_is_not_reported, what_waits_is_forgotten)
