"""Written by `python -m tests.unit.compiled_stubs`; see text_lines_cy.py."""

from array import array
from collections.abc import Callable

def text_lines(view: memoryview, rows: array[int], count: int, unusual: Callable[[int], bytes]) -> memoryview: ...
def is_compiled() -> bool: ...
