"""Makes mutants: `python mutants.py ROOT FILE…` prints one JSON object per mutant.

Runs in an environment of its own that has cosmic-ray, whose operators decide what is changed;
`run.py` starts it there. To those operators it adds the removal of a whole statement, as a
forgotten line is the commonest of faults.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator, operator_names

OPERATORS = re.compile(
    r"core/(ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Add|FloorDiv_Mul|Mod_Mul|RShift_LShift"
    r"|LShift_RShift|BitAnd_BitOr|BitOr_BitAnd|BitXor_BitAnd)"
    r"|ReplaceComparisonOperator_(Eq_NotEq|NotEq_Eq|Lt_LtE|LtE_Lt|Gt_GtE|GtE_Gt|Lt_GtE|Gt_LtE"
    r"|Is_IsNot|IsNot_Is)"
    r"|ReplaceUnaryOperator_Delete_(USub|Not|Invert)|AddNot|ReplaceTrueWithFalse"
    r"|ReplaceFalseWithTrue|ReplaceAndWithOr|ReplaceOrWithAnd|ReplaceBreakWithContinue"
    r"|ReplaceContinueWithBreak|NumberReplacer|ZeroIterationForLoop)"
)
"""One or two replacements for each operator: eleven for one sign would drown the rest."""
SIMPLE = ("expr_stmt", "return_stmt", "raise_stmt", "del_stmt", "atom_expr")
LEFT_OUT = ("assert_stmt", "import_name", "import_from", "decorator", "tfpdef")
"""Mutants of annotations change nothing; those of asserts are no faults of the product."""
CHECK = re.compile(r"_?check(_|$)")
"""Functions that only assert invariants."""


class RemoveStatement(Operator):
    """Replaces a simple statement by `pass`."""

    def mutation_positions(self, node: Any) -> Iterator[Any]:
        """A statement of its own line, neither a docstring nor an assert."""
        parent = getattr(node, "parent", None)
        alone = parent is not None and parent.type == "simple_stmt"
        if node.type in SIMPLE and alone and in_function(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """The statement's place is kept."""
        replaced = parso.parse("pass").children[0]
        replaced.get_first_leaf().prefix = node.get_first_leaf().prefix
        return replaced

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        """None are needed: these serve cosmic-ray's own tests."""
        return ()


def operators() -> Iterator[tuple[str, Any]]:
    """Name and instance of each operator that is used."""
    for name in operator_names():
        if OPERATORS.fullmatch(name):
            yield name.removeprefix("core/"), get_operator(name)()
    yield "RemoveStatement", RemoveStatement()


def mutable(node: Any) -> bool:
    """Whether a mutant at that node can be a fault of the product."""
    if node.type == "string":
        return False
    child = None
    while node is not None:
        if node.type in LEFT_OUT:
            return False
        if node.type == "funcdef" and CHECK.match(node.name.value):
            return False
        if node.type in ("funcdef", "param") and child is not None and child is node.annotation:
            return False
        if node.type == "annassign" and child is node.children[1]:
            return False
        child, node = node, node.parent
    return True


def in_function(node: Any) -> bool:
    """Whether the node stands in a function's body."""
    return any(parent.type == "funcdef" for parent in _parents(node))


def _parents(node: Any) -> Iterator[Any]:
    while node.parent is not None:
        node = node.parent
        yield node


def mutants(root: Path, place: str) -> Iterator[dict[str, Any]]:
    """All mutants of one file, without their source."""
    source = (root / place).read_text(encoding="utf-8")
    tree = get_ast(source)
    lines = source.splitlines()
    for name, operator in operators():
        occurrence = -1
        for node in ast_nodes(tree):
            for (line, column), (last_line, last_column) in operator.mutation_positions(node):
                occurrence += 1
                if mutable(node):
                    yield {
                        "file": place,
                        "operator": name,
                        "occurrence": occurrence,
                        "line": line,
                        "column": column,
                        "end": [last_line, last_column],
                        "text": lines[line - 1].strip(),
                    }


def source_of(root: Path, mutant: dict[str, Any]) -> str | None:
    """The mutated source; None: that occurrence cannot be mutated."""
    operator = dict(operators())[mutant["operator"]]
    source = (root / mutant["file"]).read_text(encoding="utf-8")
    return mutate_code(source, operator, mutant["occurrence"])  # type: ignore[no-any-return]


def main() -> int:
    """`ROOT list FILE…` lists mutants; `ROOT make` reads mutants, writes them with their source."""
    root, verb = Path(sys.argv[1]), sys.argv[2]
    if verb == "list":
        for place in sys.argv[3:]:
            for mutant in mutants(root, place):
                print(json.dumps(mutant))
        return 0
    for line in sys.stdin:
        mutant = json.loads(line)
        print(json.dumps(dict(mutant, source=source_of(root, mutant))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
