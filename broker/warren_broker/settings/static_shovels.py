"""A shovel of a node's configuration: the table `shovels.NAME`."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from warren_wire.errors import Refusal
from warren_wire.links.definition import DELETE_NEVER, parse_shovel

STATIC_VHOST = ""
"""The vhost of a static shovel, which belongs to none."""
NAME_CHARACTERS_MAX = 255


def _key(name: str) -> str:
    return name.replace("_", "-")


class StaticShovel(BaseModel):
    """The keys of a dynamic shovel's parameter (shovel.md); `parse_shovel` has the rules."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=_key, populate_by_name=True
    )

    src_uri: str | list[str] = Field(repr=False, description="where messages are taken from")
    src_protocol: str = Field("amqp091", description="amqp091 or amqp10")
    src_queue: str | None = Field(None, description="the queue, over AMQP 0.9.1")
    src_exchange: str | None = Field(None, description="or the exchange")
    src_exchange_key: str | None = None
    src_address: str | None = Field(None, description="of the link, over AMQP 1.0")
    src_queue_args: dict[str, Any] | None = None
    src_consumer_args: dict[str, Any] | None = None
    src_consumer_tag: str | None = None
    src_predeclared: bool | None = None
    src_prefetch_count: int | None = None
    src_delete_after: int | str | None = Field(None, description="never; it cannot delete itself")
    dest_uri: str | list[str] = Field(repr=False, description="where messages go to")
    dest_protocol: str = Field("amqp091", description="amqp091 or amqp10")
    dest_queue: str | None = None
    dest_exchange: str | None = None
    dest_exchange_key: str | None = None
    dest_address: str | None = Field(None, description="of the link, over AMQP 1.0")
    dest_queue_args: dict[str, Any] | None = None
    dest_predeclared: bool | None = None
    dest_publish_properties: dict[str, Any] | None = None
    dest_application_properties: dict[str, Any] | None = None
    dest_message_annotations: dict[str, Any] | None = None
    dest_properties: dict[str, Any] | None = None
    dest_add_forward_headers: bool | None = None
    dest_add_timestamp_header: bool | None = None
    ack_mode: str | None = None
    reconnect_delay: int | None = None
    paused: bool | None = None

    def value(self) -> dict[str, Any]:
        """Return what a dynamic shovel's parameter would be."""
        return self.model_dump(by_alias=True, exclude_unset=True, exclude_none=True)


def check_static(name: str, shovel: StaticShovel) -> None:
    """Raise ValueError for one that cannot run, with the reason."""
    if not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise ValueError(f"shovels: a name has 1 to {NAME_CHARACTERS_MAX} characters")
    try:
        parse_shovel(STATIC_VHOST, name, shovel.value())
    except Refusal as refusal:
        raise ValueError(f"shovels.{name}: {' '.join(refusal.detail.split())}") from None
    if shovel.src_delete_after not in (None, DELETE_NEVER):
        raise ValueError(
            f"shovels.{name}: src-delete-after={shovel.src_delete_after!r}: a static shovel cannot "
            "delete itself; leave the key out, or set the shovel as a parameter"
        )
