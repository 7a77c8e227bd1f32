"""What a shovel changes of the messages that it passes on: properties, and where they have been.

The names are RabbitMQ's: over AMQP 0.9.1 headers with `x-shovelled`, over 1.0 annotations with
`x-opt-shovel`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from warren_broker.transfers.shovel.sections import Changes
from warren_wire.links.definition import ShovelDefinition
from warren_wire.links.uris import ShovelUri

FORWARD_HEADER: Final = "x-shovelled"
TIMESTAMP_HEADER: Final = "x-shovelled-timestamp"
FURTHER_KEYS_10: Final = "x-cc"
"""The annotation with which a message names more routing keys over AMQP 1.0."""
TIMESTAMP_ANNOTATION: Final = "x-opt-shovelled-timestamp"


@dataclass(frozen=True, slots=True)
class Stamps:
    """The changes of one run; cluster: the name of the one that runs the shovel."""

    shovel: ShovelDefinition
    cluster: str
    source: ShovelUri
    target: ShovelUri

    def stamp(self, properties: Any) -> Any:
        """Change the properties of a message over AMQP 0.9.1, and return them."""
        shovel = self.shovel
        for key, value in shovel.properties.items():
            setattr(properties, key, value)
        if shovel.forward_headers or shovel.timestamp_header:
            headers = dict(properties.headers or {})
            if shovel.forward_headers:
                before = headers.get(FORWARD_HEADER)
                more = before if isinstance(before, list) else []
                headers[FORWARD_HEADER] = [self._journey(), *more]
            if shovel.timestamp_header:
                headers[TIMESTAMP_HEADER] = int(time.time())
            properties.headers = headers
        return properties

    def changes(self) -> Changes:
        """Return what a message over AMQP 1.0 gets."""
        shovel = self.shovel
        annotations: dict[str, str | int] = dict(shovel.annotations)
        if shovel.forward_headers:
            annotations |= {
                "x-opt-shovelled-by": self.cluster,
                "x-opt-shovel-type": self._kind,
                "x-opt-shovel-name": shovel.name,
            }
        if shovel.timestamp_header:
            annotations[TIMESTAMP_ANNOTATION] = time.time_ns() // 1_000_000
        # As with CC over AMQP 0.9.1: the queues that it names would get the message a second time.
        unfit = (FURTHER_KEYS_10,) if shovel.destination.is_one_queue else ()
        return Changes(annotations, dict(shovel.application_properties), shovel.properties, unfit)

    @property
    def _kind(self) -> str:
        return "static" if self.shovel.is_static else "dynamic"

    def _journey(self) -> dict[str, Any]:
        shovel, source, target = self.shovel, self.shovel.source, self.shovel.destination
        told = {
            "shovelled-by": self.cluster,
            "shovel-type": self._kind,
            "shovel-name": shovel.name,
            "shovel-vhost": shovel.vhost or None,
            "src-uri": self.source.shown(),
            "dest-uri": self.target.shown(),
            "src-queue": source.queue,
            "src-exchange": source.exchange,
            "src-exchange-key": source.exchange_key if source.exchange is not None else None,
            "src-address": source.address or None,
            "dest-queue": target.queue,
            "dest-exchange": target.exchange,
            "dest-exchange-key": target.exchange_key,
        }
        return {key: value for key, value in told.items() if value is not None}
