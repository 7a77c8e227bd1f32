"""Cython's pure mode, for mypy: numbers are int, pointers and views Any.

Interpreted, a pointer or view is bytes, a bytearray or a memoryview. `uint[::1]` is a view, `uint`
alone a number: hence the default of its type variable.
"""

import builtins
from collections.abc import Callable
from typing import Annotated, Any, TypeAlias

from typing_extensions import TypeVar

T = TypeVar("T")
N = TypeVar("N", default=builtins.int)

compiled: bool
NULL: Any

bint: TypeAlias = builtins.int
uchar: TypeAlias = builtins.int
int: TypeAlias = Annotated[N, "C"]
uint: TypeAlias = Annotated[N, "C"]
longlong: TypeAlias = builtins.int
ulonglong: TypeAlias = Annotated[N, "C"]
Py_ssize_t: TypeAlias = builtins.int
float: TypeAlias = builtins.float
void: TypeAlias = None

Py_buffer: TypeAlias = Any
p_char: TypeAlias = Any
p_uchar: TypeAlias = Any
p_const_uchar: TypeAlias = Any
p_uint: TypeAlias = Any
p_longlong: TypeAlias = Any
p_ulonglong: TypeAlias = Any
p_double: TypeAlias = Any

def cclass(cls: T) -> T: ...
def cfunc(function: T) -> T: ...
def inline(function: T) -> T: ...
def exceptval(value: object = ..., check: bool = ...) -> Callable[[T], T]: ...
def address(value: object) -> Any: ...
def cast(kind: object, value: object) -> Any: ...
def declare(kind: object, value: Any = ..., visibility: str = ...) -> Any: ...
