"""`dataclass` of lazy_dataclass does what the standard library's does; the one difference is when it is compiled."""

import copy
import dataclasses
import inspect
import pickle
from typing import Any, ClassVar

import pytest

import maxq.api
from maxq import lazy_dataclass
from maxq.protocol.message.message import Message

KINDS = [
    {},
    {"frozen": True},
    {"slots": True},
    {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "kw_only": True},
    {"eq": False, "slots": True},
    {"repr": False},
]


def made(dataclass: Any, options: dict[str, bool]) -> Any:
    class Point:
        """A point."""

        KIND: ClassVar[str] = "point"
        x: int
        y: int = 2
        names: list[str] = dataclasses.field(default_factory=list)
        hidden: int = dataclasses.field(default=7, repr=False, compare=False)

        def __post_init__(self) -> None:
            if self.x < 0:
                raise ValueError("negative")

    return dataclass(**options)(Point)


@pytest.fixture(params=KINDS, ids=str)
def pair(request: pytest.FixtureRequest) -> tuple[Any, Any]:
    """The class with methods that are compiled late, and the standard library's."""
    return made(lazy_dataclass.dataclass, request.param), made(dataclasses.dataclass, request.param)


def outcome(function: Any) -> Any:
    """What comes out of it, errors too, in words that do not depend on the place of an object in memory."""
    try:
        return function()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize(
    "use",
    [
        lambda cls: repr(cls(x=1)).split(" object at ")[0],
        lambda cls: repr(cls(x=1, names=["a"], hidden=3)).split(" object at ")[0],
        lambda cls: cls(x=1).names,
        lambda cls: cls(x=1, names=[]).names is cls(x=1).names,
        lambda cls: (cls(1, 3).x, cls(1, 3).y),
        lambda cls: cls(),
        lambda cls: cls(x=1, z=2),
        lambda cls: cls(x=-1),
        lambda cls: cls(x=1) == cls(x=1, hidden=8),
        lambda cls: cls(x=1) == cls(x=2),
        lambda cls: cls(x=1) == 1,
        lambda cls: len({cls(x=1, names=()), cls(x=1, names=(), hidden=8), cls(x=2, names=())}),
        lambda cls: setattr(cls(x=1), "x", 2),
        lambda cls: delattr(cls(x=1), "y"),
        lambda cls: dataclasses.asdict(cls(x=1)),
        lambda cls: dataclasses.replace(cls(x=1), y=5).y,
        lambda cls: dataclasses.replace(cls(x=1), x=-5),
        lambda cls: copy.copy(cls(x=1, y=4)).y,
        lambda cls: copy.deepcopy(cls(x=1, names=["a"])).names,
        lambda cls: hasattr(cls(x=1), "__dict__"),
        lambda cls: cls.__match_args__,
        lambda cls: cls.KIND,
        lambda cls: [field.name for field in dataclasses.fields(cls)],
        lambda cls: cls.__doc__,
    ],
)
def test_an_object_is_as_the_standard_librarys(pair: tuple[Any, Any], use: Any) -> None:
    late, standard = pair
    for _ in range(2):  # the first use compiles
        assert outcome(lambda: use(late)) == outcome(lambda: use(standard))


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Base:
    a: int


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Derived(Base):
    b: tuple[int, ...] = ()


def test_fields_are_inherited_and_objects_survive_pickle() -> None:
    value = Derived(1, (2, 3))
    assert pickle.loads(pickle.dumps(value)) == value
    assert (value.a, value.b, repr(value)) == (1, (2, 3), "Derived(a=1, b=(2, 3))")
    assert Base(1) != Derived(1)
    assert len({value, Derived(1, (2, 3)), Base(1)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        value.a = 2  # type: ignore[misc]


def test_a_subclass_may_have_attributes_of_its_own() -> None:
    class More(Base):
        def __init__(self) -> None:
            super().__init__(1)
            self.more = 2

    assert (More().a, More().more) == (1, 2)
    with pytest.raises(dataclasses.FrozenInstanceError):
        More().a = 2  # type: ignore[misc]


def test_what_a_class_defines_itself_stays() -> None:
    @lazy_dataclass.dataclass(frozen=True)
    class Odd:
        a: int = 1

        def __repr__(self) -> str:
            return "odd"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 4

    assert (repr(Odd()), Odd() == 1, hash(Odd())) == ("odd", True, 4)


def test_a_hash_that_python_took_away_is_made() -> None:
    """A class that compares has `__hash__ = None` unless it says something else."""

    class Compared:
        a: int = 1

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Compared)

    for options in ({"frozen": True}, {}):
        late, standard = (
            make(**options)(type("Compared", (), dict(vars(Compared))))
            for make in (lazy_dataclass.dataclass, dataclasses.dataclass)
        )
        assert outcome(lambda cls=late: hash(cls())) == outcome(lambda cls=standard: hash(cls()))


def test_a_class_without_a_docstring_has_its_name() -> None:
    @lazy_dataclass.dataclass()
    class Silent:
        a: int

    assert Silent.__doc__ == "Silent", "the standard library's makes a signature, by the slow module inspect"


def test_an_object_that_contains_itself_has_a_text() -> None:
    @lazy_dataclass.dataclass()
    class Ring:
        next: Any = None

    ring = Ring()
    ring.next = ring
    assert repr(ring).endswith("Ring(next=...)")


def test_nothing_is_compiled_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions of the standard library's come from text, which has no file."""
    texts: list[str] = []

    def noted(text: str, *spaces: Any) -> None:
        texts.append(text)
        exec(text, *spaces)

    monkeypatch.setattr(dataclasses, "exec", noted, raising=False)

    def compiled(cls: type) -> set[str]:
        return {
            name for name, value in vars(cls).items()
            if getattr(getattr(value, "__code__", None), "co_filename", "") == "<string>"
        }  # fmt: skip

    cls = made(lazy_dataclass.dataclass, {"frozen": True, "slots": True})
    assert compiled(cls) == set() and texts == []
    value = cls(1)
    assert compiled(cls) == {"__init__"} and texts
    assert value == cls(1)
    assert compiled(cls) == {"__init__", "__eq__"}


def test_signatures_name_the_fields() -> None:
    @lazy_dataclass.dataclass(slots=True)
    class Point:
        x: int
        y: int = 2

    class Named(Point):
        pass

    class Other(Point):
        def __init__(self, text: str) -> None:
            super().__init__(int(text))

    assert str(inspect.signature(Point)) == "(x: int, y: int = 2) -> None"
    assert list(inspect.signature(Named).parameters) == ["x", "y"]
    assert list(inspect.signature(Other).parameters) == ["text"]
    assert list(inspect.signature(Message).parameters) == ["topic", "body", "properties", "flag"]


def test_the_library_shows_users_its_own_names_only() -> None:
    assert dir(maxq.api) == sorted(maxq.api.__all__)
