"""Stand-in for the `cython` module where Cython is not installed: annotations and decorators that do nothing.

Used by the `*_cy.py` modules only, as `except ModuleNotFoundError: from maxq.runtime import cython`.
"""

from collections.abc import Callable
from typing import Any

compiled = False


class _Type:
    """Stands for any type name: it can be subscripted, called as a cast, and used as an annotation."""

    def __getitem__(self, item: Any) -> "_Type":
        return self

    def __call__(self, value: Any = 0, *rest: Any) -> Any:
        return value


char = uchar = short = ushort = int = uint = long = ulong = longlong = ulonglong = Py_ssize_t = size_t = _Type()
bint = double = float = void = p_char = p_uchar = p_int = p_longlong = const = _Type()


def _unchanged(item: Any) -> Any:
    return item


cfunc = ccall = cclass = inline = final = nogil = no_gc = _unchanged


def _decorator(*_args: Any, **_kwargs: Any) -> Callable[[Any], Any]:
    return _unchanged


boundscheck = wraparound = cdivision = exceptval = locals = returns = freelist = _decorator


def declare(_type: Any = None, value: Any = None, **_names: Any) -> Any:
    return value


def cast(_type: Any, value: Any, **_options: Any) -> Any:
    return value


def address(value: Any) -> Any:
    return value
