"""The table `log` of a node's settings; names are RabbitMQ's."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias

from pydantic import Field, field_validator

from warren_broker.settings.settings_table import SettingsTable
from warren_wire.admin.logs import Category, CategoryLevel

LogLevel: TypeAlias = Literal[
    "debug", "info", "notice", "warning", "error", "critical", "alert", "emergency", "none"
]
"""RabbitMQ's levels. Lines have those of `logs.LEVELS`."""
LineFormat: TypeAlias = Literal["plaintext", "json"]


class LogExchangeSettings(SettingsTable):
    """Whether the node publishes its log, to the exchange `amq.rabbitmq.log`.

    As in RabbitMQ a level other than none turns it on by itself.
    """

    enabled: bool | None = Field(None, description="publish them; `log.exchange = true` is short")
    level: LogLevel | None = Field(
        None, description="lowest that is published; by default that of the log"
    )

    @property
    def on(self) -> bool:
        """Whether lines are published."""
        wanted = self.level is not None if self.enabled is None else self.enabled
        return wanted and self.level != "none"


class LogConsoleSettings(SettingsTable):
    """How lines are written to standard error."""

    formatter: LineFormat = Field("plaintext", description="of the lines on standard error")


class LogRotation(SettingsTable):
    """When the log's file is put aside, and how many are kept."""

    size: int = Field(10 << 20, ge=4096, description="a file of as many bytes is put aside")
    count: int = Field(
        5, ge=2, le=1000, description="files that are kept, the one that is written included"
    )


class LogFileSettings(SettingsTable):
    """A file that gets the lines, too."""

    path: Path | None = Field(None, description="it gets the lines, too")
    formatter: LineFormat = Field("plaintext", description="of the lines in the file")
    rotation: LogRotation = LogRotation()


class LogSettings(SettingsTable):
    """Where the log goes, and which lines."""

    console: LogConsoleSettings = LogConsoleSettings()
    file: LogFileSettings = LogFileSettings()
    levels: dict[Category, CategoryLevel] = Field(
        default_factory=dict,
        description="lowest level of lines by category, as `warren logs levels` shows them",
    )
    exchange: LogExchangeSettings = LogExchangeSettings()

    @field_validator("exchange", mode="before")
    @classmethod
    def _switch(cls, value: object) -> object:
        """Take `log.exchange = true`, as RabbitMQ has it."""
        return {"enabled": value} if isinstance(value, bool | str) else value
