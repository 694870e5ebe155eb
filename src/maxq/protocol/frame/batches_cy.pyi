"""Typed face of the compiled reader of batch bodies. See batches_cy.py."""

from array import array

def count_records(data: bytes | bytearray | memoryview, most: int) -> tuple[int, int]:
    """Return how many whole records the batch body begins with, `most` at most, and the position behind them."""

def have_bodies(data: bytes | bytearray | memoryview, count: int, most_properties: int) -> bool:
    """Return whether each of the first `count` records, which `count_records` found whole, has a body, and no more than
    `most_properties` bytes of properties."""

def record_places(data: bytes | bytearray | memoryview, count: int, first: int, more: int) -> array[int]:
    """Return the physical offset of each of the first `count` records, which `count_records` found whole, if the first
    one is stored at `first` and each takes `more` bytes more in the log than in the batch body."""
