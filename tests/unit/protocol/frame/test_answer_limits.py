"""Long bodies are put together in pieces, and end where no client takes more."""

import json

import pytest

from maxq.errors import RequestRefusedError
from maxq.protocol.frame.answer_limits import LongBody


@pytest.mark.parametrize("count", [0, 1, 2, 30_000])
def test_rows_of_a_map_and_of_a_list_stand_between_the_other_members(count: int) -> None:
    as_map, as_list = LongBody(1, 10_000_000), LongBody(1, 10_000_000)
    for number in range(count):
        as_map.add(b'"k%d":%d' % (number, number))
        as_list.add(b"%d" % number)
    pieces = as_map.filled(b'{"a":1,"table":{},"z":2}', "table")
    assert json.loads(b"".join(pieces)) == {"a": 1, "table": {f"k{n}": n for n in range(count)}, "z": 2}
    assert all(len(piece) < 70_000 for piece in pieces)
    assert (len(pieces) > 5) == (count == 30_000)
    assert json.loads(b"".join(as_list.filled(b'{"rows":[]}', "rows", b"[]"))) == {"rows": list(range(count))}


def test_it_ends_soon_after_its_limit_with_size_limit_and_remedy() -> None:
    body = LongBody(317, 200_000)
    with pytest.raises(RequestRefusedError, match=r"has 2\d{5} bytes or more, a client takes frames of 200000; ask"):
        for _ in range(2_700):
            body.add(b"x" * 100)
