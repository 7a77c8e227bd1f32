"""What the kernel's sources ask of the `cython` module, for machines that run them without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

compiled = False
Py_ssize_t = longlong = uint = ulonglong = int


def cclass(cls: T) -> T:
    """An extension type when compiled."""
    return cls


def cfunc(function: T) -> T:
    """A C function when compiled."""
    return function


def inline(function: T) -> T:
    """A hint to the C compiler."""
    return function


def exceptval(*_: object, **__: object) -> Callable[[T], T]:
    """How a C function reports exceptions."""
    return lambda function: function


def declare(_: object = None, value: Any = None, **__: object) -> Any:
    """A variable's or attribute's C type, with its value."""
    return value


def typedef(kind: T) -> T:
    """Another name of a C type."""
    return kind


def cast(_: object, value: T) -> T:
    """A C cast."""
    return value
