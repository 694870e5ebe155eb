"""The stubs of compiled modules are what their sources make of them (compiled_stubs.py)."""

from pathlib import Path

import pytest

from tests.unit import compiled_stubs

STUBS = dict(compiled_stubs.stubs())


def test_every_compiled_module_has_a_stub_and_no_stub_is_left_of_one_that_is_gone() -> None:
    assert sorted(compiled_stubs.PACKAGE.rglob("*_cy.pyi")) == sorted(STUBS)
    assert len(STUBS) > 20


@pytest.mark.parametrize("stub", STUBS, ids=lambda path: path.stem)
def test_a_stub_is_fresh(stub: Path) -> None:
    assert stub.read_text() == STUBS[stub], "run python -m tests.unit.compiled_stubs"


SOURCE = '''
"""A module."""
from typing import TYPE_CHECKING

from maxq.runtime import buffers

if TYPE_CHECKING:
    from array import array

LEFT, RIGHT = range(2)
_HIDDEN = 3


@cython.cclass
class Counter:
    """Counts."""

    count = cython.declare(cython.longlong, visibility="readonly")
    rows = cython.declare(object, visibility="public")  # type: array[int]  # one for each
    _own = cython.declare(cython.bint)

    def __init__(
        self,
        rows,  # type: array[int]
        step: cython.int = 1,
    ):
        self.rows = rows

    @cython.cfunc
    def _take(self, p: cython.p_uchar) -> cython.int:
        return 0

    @cython.ccall
    def is_even(self) -> cython.bint:
        return True


def counted(view: cython.uchar[::1]):  # a comment
    # type: (...) -> int
    return 0
'''


def test_what_a_source_does_not_say_of_its_types_is_asked_for(tmp_path: Path) -> None:
    source = tmp_path / "some_cy.py"
    source.write_text(SOURCE)
    with pytest.raises(AssertionError, match="counted: say the type of view in a comment"):
        compiled_stubs.Stub(source).text()


def test_a_stub_has_what_python_sees_with_the_types_of_comments_and_of_cython(tmp_path: Path) -> None:
    source = tmp_path / "some_cy.py"
    source.write_text(SOURCE.replace("view: cython.uchar[::1]", "view: bytes, *, most: cython.Py_ssize_t = 9"))
    made = compiled_stubs.Stub(source).text()
    assert made == (
        '"""Written by `python -m tests.unit.compiled_stubs`; see some_cy.py."""\n\n'
        "from array import array\n\n"
        "LEFT: int\nRIGHT: int\n\n"
        "class Counter:\n"
        "    count: int\n"
        "    rows: array[int]\n"
        "    def __init__(self, rows: array[int], step: int = 1) -> None: ...\n"
        "    def is_even(self) -> bool: ...\n\n"
        "def counted(view: bytes, *, most: int = 9) -> int: ...\n"
    )
