"""An object is whole when its constructor returns: no function is bound to it later from outside.

What an object calls is an argument of its constructor (a function, a Protocol, a record of
callbacks), or of the method that starts its work. Where any number of parts may listen, the object
has a list of functions from its construction on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from textwrap import dedent

from tidy import house

BOUND_LATER: dict[str, str] = {}
"""Place (`module: attribute`) → why a function is bound there after the construction."""

STARTED_LATER = {
    "Host": "a stopped host has no files: the parts that work on the log are made by `start`",
    "ReadyLoop": "the host's parts call it before the log is open, which `begin` is given",
}
"""Class → why its constructor leaves attributes without a value."""


@dataclass(frozen=True)
class Names:
    """The names of the sources, by what they stand for in any class or module.

    called  attributes that are declared to hold a function
    methods  of classes; functions: of modules
    data    attributes that hold something else: fields and properties
    """

    called: frozenset[str]
    methods: frozenset[str]
    functions: frozenset[str]
    data: frozenset[str]


def names(trees: list[ast.Module]) -> Names:
    """Collect the names of these modules."""
    nodes = [node for tree in trees for node in house.nodes_of(tree)]
    classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
    aliases = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and _is_callable_type(node.value, frozenset())
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    called, data = set(), set()
    for node in nodes:
        if isinstance(node, ast.AnnAssign):
            name = _attribute(node.target)
            (called if _is_callable_type(node.annotation, aliases) else data).add(name)
        elif isinstance(node, ast.Assign):
            data.update(_attribute(target) for target in node.targets)
    functions = [(one, True) for made in classes for one in made.body]
    functions += [(one, False) for tree in trees for one in tree.body]
    methods, plain = set(), set()
    for one, is_method in functions:
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(ast.unparse(each).endswith("property") for each in one.decorator_list):
                data.add(one.name)
            else:
                (methods if is_method else plain).add(one.name)
    return Names(frozenset(called), frozenset(methods), frozenset(plain), frozenset(data))


def _attribute(target: ast.expr) -> str:
    if isinstance(target, ast.Attribute):
        return target.attr
    return target.id if isinstance(target, ast.Name) else ""


def _is_callable_type(annotation: ast.expr, aliases: frozenset[str] | set[str]) -> bool:
    if isinstance(annotation, ast.BinOp):  # … | None
        return any(_is_callable_type(one, aliases) for one in (annotation.left, annotation.right))
    if isinstance(annotation, ast.Subscript):
        return _attribute(annotation.value) == "Callable"
    return _attribute(annotation) in aliases


def bound_later(tree: ast.Module, known: Names) -> Iterator[tuple[int, str]]:
    """Line and text of each assignment of a function to an attribute of another object."""
    in_reach = _functions_in_reach(tree, known)
    for function in house.nodes_of(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        inside = tuple(ast.walk(function))
        reached = in_reach | {one.name for one in inside if isinstance(one, ast.FunctionDef)}
        for node in inside:
            for line, target, value in _assignments(node):
                if isinstance(target.value, ast.Name) and target.value.id in {"self", "cls"}:
                    continue
                declared = target.attr in known.called and not _is_none(value)
                if declared or _is_function(value, known, reached):
                    yield line, f"{ast.unparse(target)} = {ast.unparse(value)}"


def _assignments(node: ast.AST) -> Iterator[tuple[int, ast.Attribute, ast.expr]]:
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Attribute):
                yield node.lineno, target, node.value


def _is_none(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _functions_in_reach(tree: ast.Module, known: Names) -> set[str]:
    """Names of functions that this module defines or imports."""
    own = {one.name for one in tree.body if isinstance(one, ast.FunctionDef)}
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in known.functions
    }
    return own | imported


def _is_function(value: ast.expr, known: Names, reached: set[str]) -> bool:
    match value:
        case ast.Lambda():
            return True
        case ast.Call(func=called):
            return _attribute(called) == "partial"
        case ast.Name(id=name):
            return name in reached
        case ast.Attribute(attr=name):
            return name in known.methods | known.functions and name not in known.data
        case _:
            return False


def test_no_function_is_bound_to_another_object_after_its_construction() -> None:
    sources = house.sources()
    known = names([module.tree for module in sources])
    found = {
        f"{module.place}:{line}: {text}"
        for module in sources
        for line, text in bound_later(module.tree, known)
        if f"{module.name}: {text.split(' = ')[0]}" not in BOUND_LATER
    }
    house.report(
        sorted(found),
        "pass it to the constructor, alone or in a record of callbacks; return a value instead of "
        "calling back; where any number of parts listen, append it to a list of the object",
    )


def given_late(made: ast.ClassDef, classes: dict[str, ast.ClassDef]) -> Iterator[tuple[int, str]]:
    """Line and name of each attribute of an object that its constructor gives no value.

    What a method sets that the constructor calls counts as given. A class with a base that is not
    among `classes` is passed over: its base may give them.
    """
    family = [made]
    for one in family:
        bases = [_attribute(base) for base in one.bases]
        if not all(base in classes for base in bases):
            return
        family += [classes[base] for base in bases]
    body = [item for one in reversed(family) for item in one.body]
    methods: dict[str, list[ast.FunctionDef]] = {}
    for item in body:
        if isinstance(item, ast.FunctionDef):
            methods.setdefault(item.name, []).append(item)
    if "__init__" not in methods:
        return
    given = {_attribute(one.target) for one in body if isinstance(one, ast.AnnAssign)}
    given |= {
        _attribute(name) for one in body if isinstance(one, ast.Assign) for name in one.targets
    }
    reached, todo = set(), ["__init__"]
    while todo:
        name = todo.pop()
        if name in methods and name not in reached:
            reached.add(name)
            given |= {found for one in methods[name] for _, found in _own_attributes(one)}
            todo += [
                node.func.attr
                for one in methods[name]
                for node in ast.walk(one)
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            ]
    for name in sorted(methods.keys() - reached):
        for one in methods[name]:
            for line, found in _own_attributes(one):
                if found not in given and one in made.body:
                    yield line, found


@cache
def _own_attributes(function: ast.FunctionDef) -> tuple[tuple[int, str], ...]:
    inside = tuple(ast.walk(function))
    bare = {
        id(node.target) for node in inside if isinstance(node, ast.AnnAssign) and node.value is None
    }
    return tuple(
        (node.lineno, node.attr)
        for node in inside
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and id(node) not in bare
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def test_a_constructor_gives_every_attribute_a_value() -> None:
    found = {}
    classes = {
        made.name: made
        for module in house.sources()
        for made in house.nodes_of(module.tree)
        if isinstance(made, ast.ClassDef)
    }
    for module in house.sources():
        for made in house.nodes_of(module.tree):
            if isinstance(made, ast.ClassDef):
                late = list(given_late(made, classes))
                if late:
                    found[made.name] = [f"{module.place}:{line}: {name}" for line, name in late]
    house.report(
        [
            place
            for name, places in sorted(found.items())
            if name not in STARTED_LATER
            for place in places
        ],
        "construct it when all that it needs is there; None where it is absent for a while",
    )
    assert STARTED_LATER.keys() <= found.keys(), "is whole by now: remove it from STARTED_LATER"


def test_such_attributes_are_found() -> None:
    text = dedent("""
        class Late:
            count: int

            def __init__(self):
                self.here = None
                self.declared: str
                self.reset()

            def reset(self):
                self.size = 0

            def start(self):
                self.here, self.count, self.size = 1, 2, 3
                self.declared = "now"
                self.there = 4
    """)
    (made,) = ast.parse(text).body
    assert isinstance(made, ast.ClassDef)
    assert [name for _, name in given_late(made, {})] == ["declared", "there"]


def test_such_assignments_are_found() -> None:
    text = dedent('''
        Heard = Callable[[bytes], None]

        def said(text):
            """A function of the module."""

        class Source:
            count: int

            def __init__(self, call: Heard):
                self.call: Heard = call
                self.later: Callable[[], None] | None = None
                self.listeners: list[Heard] = []
                self.size = 0

            @property
            def length(self):
                return self.size

            def drain(self):
                self.later = self.drain

        class Sink:
            def __init__(self, source, other):
                source.whatever = self.heard
                source.whatever = lambda text: None
                source.whatever = partial(said, 1)
                source.whatever = said
                source.call = other.anything
                self.source.whatever = other.drain

                def inner(): ...

                source.whatever = inner
                source.listeners.append(self.heard)
                source.count = other.length
                source.size = other.size
                source.later = None
                self.whatever = self.heard

            def heard(self): ...
    ''')
    tree = ast.parse(text)
    assert [found for _, found in bound_later(tree, names([tree]))] == [
        "source.whatever = self.heard",
        "source.whatever = lambda text: None",
        "source.whatever = partial(said, 1)",
        "source.whatever = said",
        "source.call = other.anything",
        "self.source.whatever = other.drain",
        "source.whatever = inner",
    ]
