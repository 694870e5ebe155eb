"""`dataclass`, whose methods are compiled when they are first used.

The standard library's makes source text of up to six methods for each class and has it compiled when the class is
loaded. A server loads 300 such classes and has objects of a fifth of them: the compiler was 40 % of its start. Here a
class gets its fields, slots and `__match_args__` at once and the same methods as there later: each by the first call.
For type checkers the two are one. Not supported: `order`, `unsafe_hash`, InitVar.
"""

import dataclasses
import inspect
from collections.abc import Callable
from functools import partial
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any


def _dataclass(
    cls: Any = None,
    /,
    *,
    frozen: bool = False,
    slots: bool = False,
    eq: bool = True,
    repr: bool = True,
    kw_only: bool = False,
) -> Any:
    if cls is None:
        return partial(_dataclass, frozen=frozen, slots=slots, eq=eq, repr=repr, kw_only=kw_only)
    own = dict(vars(cls))
    if own.get("__hash__") is None and "__eq__" in own:
        own.pop("__hash__", None)  # set by Python, not by the class
    if not cls.__doc__:
        cls.__doc__ = cls.__name__
    bare: Any = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    methods: dict[str, Any] = {"__init__": _first_init(bare, frozen, slots)}
    if repr:
        methods["__repr__"] = _repr
    if eq:
        methods |= {"__eq__": _first_eq(bare), "__hash__": _first_hash(bare) if frozen else None}
    if frozen:
        methods |= {"__setattr__": _refuse_setting(bare), "__delattr__": _refuse_deleting(bare)}
        if slots:  # pickle and copy cannot set the fields
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
    for name, method in methods.items():
        if name not in own:
            setattr(bare, name, method)
    if "__init__" not in own:
        bare.__signature__ = _LazySignature(bare, frozen, slots)
    return bare


class _LazySignature:
    """The fields of a class, as `inspect.signature`, `help` and editors show them."""

    def __init__(self, cls: Any, frozen: bool, slots: bool) -> None:
        self._cls = cls
        self._compile = partial(_compiled, cls, init=True, repr=False, eq=False, frozen=frozen, slots=slots)

    def __get__(self, _instance: object, owner: type) -> inspect.Signature:
        if owner.__init__ is not self._cls.__init__:  # type: ignore[misc]
            raise AttributeError("__signature__")  # a subclass has a method of its own
        return inspect.signature(self._compile())


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass


def _first_init(cls: Any, frozen: bool, slots: bool) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        made = cls.__init__ = _compiled(cls, init=True, repr=False, eq=False, frozen=frozen, slots=slots).__init__
        made(self, *args, **kwargs)

    return __init__


def _first_eq(cls: Any) -> Callable[[Any, object], Any]:
    def __eq__(self: Any, other: object) -> Any:
        made = cls.__eq__ = _compiled(cls, init=False, repr=False, eq=True).__eq__
        return made(self, other)

    return __eq__


def _first_hash(cls: Any) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:
        made = cls.__hash__ = _compiled(cls, init=False, repr=False, eq=True, unsafe_hash=True).__hash__
        return int(made(self))

    return __hash__


def _compiled(cls: Any, **options: bool) -> Any:
    """Return a class with the same fields whose methods the standard library's `dataclass` has made. The methods work
    on objects of `cls`, too."""
    fields = dataclasses.fields(cls)
    members: dict[str, Any] = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__name__,
        "__annotations__": {field.name: field.type for field in fields},
        **{field.name: field for field in fields},
    }
    if hasattr(cls, "__post_init__"):
        members["__post_init__"] = cls.__post_init__
    return dataclasses.dataclass(**options)(type(cls.__name__, (), members))


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_setting(cls: Any) -> Callable[[Any, str, Any], None]:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    return __setattr__


def _refuse_deleting(cls: Any) -> Callable[[Any, str], None]:
    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __delattr__


def _state(self: Any) -> list[Any]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
