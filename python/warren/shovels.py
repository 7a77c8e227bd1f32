"""Shovels, as a policymaker sees and changes them."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from warren.connection import Connection
from warren.errors import UsageError
from warren_broker.management.shovel_values import ShovelInfo


class ShovelCalls:
    """The part of `Admin` that concerns shovels; each raises NotFound, AccessRefused, Unavailable.

    A shovel is a parameter of component `shovel`; what cannot be set is a PeerError, with the
    broker's text.
    """

    connection: Connection

    def shovels(self, vhost: str | None = None) -> list[ShovelInfo]:
        """Shovels with their states, by vhost and name; None: of all vhosts."""
        path = "/shovels" if vhost is None else f"/shovels/{quote(vhost, safe='')}"
        return [msgspec.convert(body, ShovelInfo) for body in self.connection.request("GET", path)]

    def federation_links(self, vhost: str | None = None) -> list[ShovelInfo]:
        """Links of federated queues, by vhost, queue and upstream; None: of all vhosts.

        name is the upstream's, dest_queue the federated queue.
        """
        path = "/federation-links" + ("" if vhost is None else f"/{quote(vhost, safe='')}")
        return [msgspec.convert(body, ShovelInfo) for body in self.connection.request("GET", path)]

    def shovel(self, vhost: str, name: str) -> ShovelInfo:
        """One shovel; NotFound."""
        return msgspec.convert(self.connection.request("GET", _path(vhost, name)), ShovelInfo)

    def set_shovel(self, vhost: str, name: str, value: dict[str, Any]) -> None:
        """Add or replace a shovel; the keys are RabbitMQ's: src-uri, src-queue, dest-uri …"""
        path = f"/parameters/shovel{_path(vhost, name).removeprefix('/shovels/vhost')}"
        self.connection.request("PUT", path, {"value": value})

    def restart_shovel(self, vhost: str, name: str) -> None:
        """Have a shovel connect again, also one that has ended with an error; NotFound."""
        self.connection.request("DELETE", f"{_path(vhost, name)}/restart")

    def pause_shovel(self, vhost: str, name: str) -> None:
        """Have a shovel move nothing until it is resumed, on whatever node it is; NotFound.

        What is under way is confirmed, or comes back to the source.
        """
        self.connection.request("PUT", f"{_path(vhost, name)}/pause")

    def resume_shovel(self, vhost: str, name: str) -> None:
        """Have a paused shovel run again; NotFound."""
        self.connection.request("DELETE", f"{_path(vhost, name)}/pause")

    def delete_shovel(self, vhost: str, name: str) -> None:
        """Stop and remove a shovel; NotFound."""
        self.connection.request("DELETE", _path(vhost, name))


def _path(vhost: str, name: str) -> str:
    if not vhost or not name:
        raise UsageError("a shovel's vhost and name must not be empty")
    return f"/shovels/vhost/{quote(vhost, safe='')}/{quote(name, safe='')}"
