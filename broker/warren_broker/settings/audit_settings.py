"""The table `audit` of a node's settings."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from warren_broker.settings.settings_table import SettingsTable


class AuditSettings(SettingsTable):
    """Whether administrative changes, logins and refusals are recorded, and where."""

    enabled: bool = Field(True, description="record them in files, and as events `audit.*`")
    directory: Path | None = Field(
        None, description="of the files; by default `audit` in `data_dir`"
    )
    file_bytes_max: int = Field(
        16 << 20, ge=64 << 10, le=1 << 30, description="a file that is as large is put aside"
    )
    files_max: int = Field(
        8, ge=2, le=1000, description="files that are kept, the one that is written included"
    )
