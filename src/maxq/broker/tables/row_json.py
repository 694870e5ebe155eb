"""RowJson: the JSON of a table's rows, kept from one body to the next.

With thousands of topics and groups, writing them anew for each registration, slave and tool would hold up the loop.
"""

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from maxq.protocol.json import json_dialect
from maxq.protocol.json.json_body import JsonBody, filled
from maxq.runtime.turns import Turns

Row = TypeVar("Row", bound=JsonBody)


class RowJson(Generic[Row]):
    """Caches the JSON of the rows of one table, whose rows are replaced and never mutated."""

    def __init__(self, member: str) -> None:
        """`member` is the name of the table in bodies."""
        self._member = member
        self._kept: dict[str, tuple[Row, bytes]] = {}

    async def put_into(self, body: bytes, rows: Mapping[str, Row]) -> bytes:
        """Insert `rows` into a body whose table is empty; the rows must not change meanwhile. Rows that are not cached
        yet are encoded in several turns of the loop."""
        kept = self._kept
        turns = Turns()
        texts = []
        for name, row in rows.items():
            known = kept.get(name)
            if known is not None and known[0] is row:
                texts.append(known[1])
            else:
                texts.append(self._write(name, row))
                await turns.rest()
        return filled(body, self._member, texts)

    def forget(self, names: Iterable[str]) -> None:
        """Drop the remembered JSON of rows that were removed from the table."""
        for name in names:
            self._kept.pop(name, None)

    def _write(self, name: str, row: Row) -> bytes:
        text = json_dialect.dumps({name: row.to_json()})[1:-1]
        self._kept[name] = (row, text)
        return text
