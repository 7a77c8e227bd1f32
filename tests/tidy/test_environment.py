"""One list has every variable that is read from the environment."""

from __future__ import annotations

import re

from tidy import house
from warren_broker import config

NAME = re.compile(r"""["'](WARREN_[A-Z0-9_]+)["']""")


def test_every_variable_is_in_the_list() -> None:
    """A node refuses those that are not: it would not start where such a one is set."""
    known = {*config.OTHER_VARIABLES, *config._variables()}
    findings = []
    for module in house.everything():
        if module.place in ("broker/warren_broker/config.py", "tests/broker/test_config.py"):
            continue
        for number, line in enumerate(module.lines, 1):
            if "WARREN_" in line and re.search("env", line, re.IGNORECASE):
                findings += [
                    f"{module.place}:{number}: {name}"
                    for name in NAME.findall(line)
                    if name not in known
                ]
    house.report(
        findings, "name it in OTHER_VARIABLES of warren_broker/config.py, with what reads it"
    )


def test_no_variable_of_another_part_looks_like_a_setting() -> None:
    assert not set(config.OTHER_VARIABLES) & set(config._variables())
