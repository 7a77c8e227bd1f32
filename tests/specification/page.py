"""docs/project/specification.md, generated: `python3 build.py specification`.

The files in `sentences` list the sentences of a document that state a behaviour, by their first
words (the documents are not part of this repository), and the reason of those without a test. A
test names what it holds Warren to: `@pytest.mark.specification("document: first words")`; a
scenario of the differential runner does so with `@specification(…)`.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tidy import house

SENTENCES = Path(__file__).parent / "sentences"
PAGE = house.ROOT / "docs" / "project" / "specification.md"
MARK = "specification"
REASON = " | "
TITLES = {
    "quorum-queues": "Quorum queues (RabbitMQ 4.3)",
    "reliability-guide": "Reliability guide",
    "at-least-once-dead-lettering": "At-least-once dead lettering",
    "federated-queues": "Federated queues",
    "mirrored-queues": "Mirrored queues (RabbitMQ 3.13)",
}
HEAD = """\
# RabbitMQ's documents, sentence by sentence

Which test holds Warren to which sentence of RabbitMQ's documents on queues. The documents are not
part of this repository; a sentence is named by words that it begins with, or that only it has.
Sentences that state no behaviour (advice, background, its own configuration files) are left out.
What differs from RabbitMQ is in [compatibility.md](../reference/compatibility.md).

This page is generated: `python3 build.py specification`. Sentences and reasons are in
`tests/specification/sentences`; the tests name their sentences themselves.
"""


@dataclass(frozen=True)
class Sentence:
    """A sentence that states a behaviour.

    reason  why there is no test; empty: there is one
    """

    document: str
    words: str
    reason: str

    @property
    def quoted(self) -> str:
        """How a test names it."""
        return f"{self.document}: {self.words}"


def sentences() -> list[Sentence]:
    """Read the lists, in the order of the page."""
    found = []
    for document in TITLES:
        for line in (SENTENCES / f"{document}.txt").read_text(encoding="utf-8").splitlines():
            words, _, reason = line.partition(REASON)
            found.append(Sentence(document, words, reason))
    return found


@cache
def tests() -> dict[str, list[str]]:
    """Return what tests quote: sentence to `path::function`, in the order of paths."""
    found: dict[str, list[str]] = {}
    for module in house.everything():
        if module.place.startswith("tests/"):
            for function in house.functions(module):
                for quoted in _quoted(function):
                    found.setdefault(quoted, []).append(f"{module.place}::{function.name}")
    return found


def _quoted(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call):
            name = getattr(decorator.func, "attr", getattr(decorator.func, "id", ""))
            if name == MARK:
                yield from (ast.literal_eval(argument) for argument in decorator.args)


def findings(listed: Sequence[Sentence], held: Mapping[str, list[str]]) -> list[str]:
    """Say what is wrong with the lists and the quotations."""
    known = {sentence.quoted for sentence in listed}
    wrong = [f"{held[quoted][0]}: {quoted!r} is in no list" for quoted in sorted(set(held) - known)]
    for sentence in listed:
        if sentence.quoted in held and sentence.reason:
            wrong.append(f"{sentence.quoted}: has a test and a reason for having none")
        elif sentence.quoted not in held and not sentence.reason:
            wrong.append(f"{sentence.quoted}: has neither a test nor a reason for having none")
    if len(known) != len(listed):
        wrong.append("a sentence is listed twice")
    return wrong


def page() -> str:
    """Return the page."""
    held = tests()
    lines = [HEAD]
    for document, title in TITLES.items():
        of_it = [sentence for sentence in sentences() if sentence.document == document]
        tested = sum(1 for sentence in of_it if sentence.quoted in held)
        lines.append(f"## {title}\n\n{tested} of {len(of_it)} sentences have a test.\n")
        lines.append("| sentence | tests |\n| --- | --- |")
        for sentence in of_it:
            names = "<br>".join(f"`{name}`" for name in held.get(sentence.quoted, ()))
            lines.append(f"| {sentence.words} … | {names or f'none: {sentence.reason}'} |")
        lines[-1] += "\n"
    return "\n".join(lines)


def missing(folder: Path) -> list[str]:
    """Return listed words that the documents in `folder` do not have."""
    texts = {
        document: " ".join((folder / f"{document}.txt").read_text(encoding="utf-8").split())
        for document in TITLES
    }
    return [
        sentence.quoted
        for sentence in sentences()
        if sentence.words not in texts[sentence.document].replace("’", "'")
    ]


def main(arguments: Sequence[str]) -> int:
    """Write the page; return 1 when lists and tests do not fit."""
    parser = argparse.ArgumentParser(prog="build.py specification", description=__doc__)
    parser.add_argument(
        "--documents", type=Path, metavar="FOLDER", help="look the words up in the documents there"
    )
    options = parser.parse_args(arguments)
    wrong = findings(sentences(), tests())
    if options.documents:
        wrong += [f"{quoted}: not in the document" for quoted in missing(options.documents)]
    print("\n".join(wrong) or f"writing {PAGE.relative_to(house.ROOT)}")
    if not wrong:
        PAGE.write_text(page(), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
