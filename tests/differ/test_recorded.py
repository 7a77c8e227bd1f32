"""Every scenario on a Warren node, compared with what was recorded of RabbitMQ 4.3.6."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from differ import scenarios
from differ.brokers import Warren
from differ.known import KNOWN
from differ.run import RECORDED_VERSION, serving_warren
from differ.script import SCENARIOS, Script
from differ.transcripts import FOLDER, Known, differences, parse, recorded, text_of
from tidy import house

pytestmark = pytest.mark.live
scenarios.load()
ATTEMPTS = 4
PAGES = ("reference/compatibility.md", "reference/exchanges.md")


@pytest.fixture(scope="module")
def warren(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warren]:
    with serving_warren(tmp_path_factory.mktemp("differ")) as made:
        yield made


@pytest.fixture(scope="module")
def met() -> dict[str, set[Known]]:
    """Known differences that were met, by scenario."""
    return {}


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_client_observes_the_same(name: str, warren: Warren, met: dict[str, set[Known]]) -> None:
    """A machine that stands between two steps of a scenario with times does so once, not always."""
    for _ in range(ATTEMPTS):
        script = Script(warren, name)
        found, met[name] = differences(name, recorded()[name], script.run(), KNOWN)
        if not found or not script.waited:
            break
    assert not found, "\n".join(found)


def test_every_known_difference_is_one(met: dict[str, set[Known]]) -> None:
    if set(met) != set(SCENARIOS):
        pytest.skip("not every scenario was run")
    unused = set(KNOWN) - set().union(*met.values())
    assert not unused, "remove them from tests/differ/known.py"


def test_every_known_difference_is_in_the_docs() -> None:
    text = " ".join(" ".join((house.ROOT / "docs" / page).read_text().split()) for page in PAGES)
    house.report([one.row for one in KNOWN if one.row not in text], f"say it in docs/{PAGES[0]}")


def test_the_recordings_are_of_the_scenarios() -> None:
    assert set(recorded()) == set(SCENARIOS), "record: python3 build.py differ --record"
    for path in FOLDER.glob("*.txt"):
        text = path.read_text(encoding="utf-8")
        assert RECORDED_VERSION in text.partition("==")[0], path
        assert text.endswith(text_of(parse(text))), path
