"""RowJson: the JSON of a table's rows, kept from one body to the next.

With thousands of topics and groups, writing them anew for each registration, slave and tool would hold up the loop.
"""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from maxq.protocol import json_dialect
from maxq.protocol.json_body import JsonBody

Row = TypeVar("Row", bound=JsonBody)


class RowJson(Generic[Row]):
    """Of one table by name, whose rows are replaced, never changed."""

    def __init__(self, member: str) -> None:
        """`member`: what the table is called in bodies."""
        self._empty = f'"{member}":{{}}'.encode()
        self._kept: dict[str, tuple[Row, bytes]] = {}

    def put_into(self, body: bytes, rows: Mapping[str, Row]) -> bytes:
        """A body whose table is empty, with `rows` in it."""
        before, empty, after = body.partition(self._empty)
        assert empty, "the table is a member of this name, and nothing before it may say so too"
        kept = self._kept
        texts = []
        for name, row in rows.items():
            known = kept.get(name)
            texts.append(known[1] if known is not None and known[0] is row else self._write(name, row))
        return b"".join((before, self._empty[:-1], b",".join(texts), b"}", after))

    def forget(self, names: Iterable[str]) -> None:
        """Rows that are no more."""
        for name in names:
            self._kept.pop(name, None)

    def _write(self, name: str, row: Row) -> bytes:
        text = json_dialect.dumps({name: row.to_json()})[1:-1]
        self._kept[name] = (row, text)
        return text
