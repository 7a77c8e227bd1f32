"""A stand-in for the `cython` module, for the kernel's sources on machines without it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

compiled = False
Py_ssize_t = longlong = uint = ulonglong = int
bint = bool


def cclass(cls: T) -> T:
    """Mark an extension type when compiled; here do nothing."""
    return cls


def cfunc(function: T) -> T:
    """Mark a C function when compiled; here do nothing."""
    return function


def inline(function: T) -> T:
    """Give a hint to the C compiler; here do nothing."""
    return function


def exceptval(*_: object, **__: object) -> Callable[[T], T]:
    """Set how a C function reports exceptions; here do nothing."""
    return lambda function: function


def declare(_: object = None, value: Any = None, **__: object) -> Any:
    """Return a variable's or attribute's value, without its C type."""
    return value


def cast(_: object, value: T) -> T:
    """Return the value itself for a C cast."""
    return value
