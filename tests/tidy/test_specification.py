"""Which test holds Warren to which sentence of RabbitMQ's documents: both pages are generated."""

from __future__ import annotations

from specification import page
from specification.page import Sentence
from tidy import house


def test_the_page_is_what_the_lists_and_the_tests_say() -> None:
    house.report(
        page.findings(page.sentences(), page.tests()),
        "see tests/specification/page.py: list the sentence, or quote it in a test",
    )
    assert page.PAGE.read_text(encoding="utf-8") == page.page(), "run: build.py specification"
    assert page.TABLE.read_text(encoding="utf-8") == page.table(), "run: build.py specification"


def test_what_does_not_fit_is_found() -> None:
    tested, untested = Sentence("doc", "A queue", ""), Sentence("doc", "A stream", "no streams")
    held = {"doc: A queue": ["tests/x.py::test_a"]}
    assert page.findings([tested, untested], held) == []
    assert len(page.findings([tested, tested, untested], held)) == 1
    assert len(page.findings([untested], held)) == 1, "a test quotes what is not listed"
    assert len(page.findings([tested], {})) == 1, "no test, no reason"
    assert len(page.findings([untested], {"doc: A stream": ["x"]})) == 1, "a test, and a reason"
