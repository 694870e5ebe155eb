"""Large tables, which are written in slices, have the text that the writer gives them in one go."""

import pytest

from maxq.protocol.json import json_dialect
from maxq.protocol.json.json_dialect import _Writer


@pytest.mark.parametrize("rows", [0, 1, 1000, 1001, 2500])
@pytest.mark.parametrize("text", ["plain", 'a": b', "end\\", '\\": x', "line\nbreak"])
def test_tables_of_any_size_have_the_same_form(rows: int, text: str) -> None:
    table = {f"G{number}{text}": {"name": text, "more": {}, "flag": number} for number in range(rows)}
    value = {"dataVersion": {"counter": 3}, "empty": {}, "table": table, "last": text}
    assert json_dialect.dumps_pretty(value) == _Writer(quote_integers=False, indent="\t").write(value)


def test_large_tables_with_other_keys_than_texts_are_written_too() -> None:
    value = {"table": {f"T@G{number}": {0: number} for number in range(1500)}, "list": [1, 2]}
    assert json_dialect.dumps_pretty(value) == _Writer(quote_integers=False, indent="\t").write(value)
