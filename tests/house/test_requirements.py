"""Every package that build.py installs has a version and the hashes of its files."""

from __future__ import annotations

import re
import warnings

from pyspark.sql.pandas.utils import require_minimum_pandas_version

from tidy import house
from tools import environment

HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


def test_every_requirement_has_hashes() -> None:
    """Without them an index, or what is between, could give another file of that version."""
    found = environment._requirements()
    assert len(found) > 100
    for name, text in found.items():
        first, *hashes = text.splitlines()
        assert re.match(r"\S+==\S+ ", first) and environment._package(first) == name
        assert hashes and all(HASH.fullmatch(line) for line in hashes), name
    assert len(found["msgspec"].splitlines()) > 20, "of wheels for every Python and machine"


def test_the_packages_that_are_asked_for_have_the_same_versions() -> None:
    asked = (house.ROOT / "requirements.in").read_text(encoding="utf-8").splitlines()
    found = environment._requirements()
    for line in asked:
        if name := environment._package("" if line.startswith("#") else line):
            assert found[name].split()[0].lower().replace("_", "-") == line.lower().replace(
                "_", "-"
            )


def test_pandas_is_what_pyspark_supports() -> None:
    """With pandas 3 PySpark 4.3 warns on the first screen of the demo and the examples."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        require_minimum_pandas_version()
