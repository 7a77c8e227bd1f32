"""The pages name settings of a node that there are; each has a text for the generated reference."""

from __future__ import annotations

import re
import tomllib

from pydantic import ValidationError

from tidy import house
from tools import reference
from warren_broker.config import NodeConfig

BLOCK = re.compile(r"^ *```toml\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def test_every_setting_has_a_text() -> None:
    findings = [
        f"{name}.{key}"
        for name, table in reference.tables(NodeConfig, "")
        for key, field in table.model_fields.items()
        if reference.is_key(field) and not field.description
    ]
    house.report(findings, "give its Field a description: its row in docs/reference/settings.md")


def test_the_pages_show_settings_that_there_are() -> None:
    findings = []
    for page in [*sorted((house.ROOT / "docs").rglob("*.md")), house.ROOT / "README.md"]:
        for block in BLOCK.findall(page.read_text(encoding="utf-8")):
            try:
                NodeConfig.model_validate(tomllib.loads(block))
            except ValidationError as error:
                unknown = [one for one in error.errors() if one["type"] == "extra_forbidden"]
                findings += [f"{page.name}: {'.'.join(map(str, one['loc']))}" for one in unknown]
    house.report(findings, "name the setting as it is called now")
