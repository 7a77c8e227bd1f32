"""What all tables of a configuration have in common."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class SettingsTable(BaseModel):
    """A table that knows its keys, and does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True)
