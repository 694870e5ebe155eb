"""Queue offsets as ranges, and their text in `maxqPassedOver` of a bulk pull's answer: `12,20-35`."""

from collections.abc import Iterable, Iterator


def runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Join ascending numbers to ranges [first, end)."""
    first = end = None
    for number in numbers:
        if first is None or end is None or number != end:
            if first is not None and end is not None:
                yield first, end
            first = number
        end = number + 1
    if first is not None and end is not None:
        yield first, end


def written_runs(numbers: Iterable[int]) -> str:
    """Return the text that lists queue offsets as ranges, such as `12,20-35`. The offsets may be in any order."""
    return ",".join(
        str(first) if end == first + 1 else f"{first}-{end - 1}" for first, end in runs(sorted(set(numbers)))
    )


def read_runs(text: str) -> list[tuple[int, int]]:
    """Return the ranges [first, end) of queue offsets that a text such as `12,20-35` lists.

    Raises:
        ValueError: the text does not have this form.
    """
    found = []
    for part in text.split(",") if text else ():
        first, _, last = part.partition("-")
        found.append((int(first), int(last or first) + 1))
    return found
