"""The index of offset keys."""

from maxq.broker.offset.key_index import KeyIndex


def test_keys_that_came_since_are_found() -> None:
    index, table = KeyIndex(), {"T@G": {}, "T@H": {}}
    assert index.of(table).groups == {"T": ["G", "H"]}
    table["U@G"] = {}
    assert index.of(table).topics == {"G": ["T", "U"], "H": ["T"]}


def test_keys_that_went_are_not_found() -> None:
    index, table = KeyIndex(), {"T@G": {}, "T@H": {}}
    index.of(table)
    del table["T@G"]
    index.forget()
    table["V@H"] = {}
    assert index.of(table).topics == {"H": ["T", "V"]}


def test_another_table_has_another_index() -> None:
    index = KeyIndex()
    assert index.of({"T@G": {}}).topics == {"G": ["T"]}
    assert index.of({"U@H": {}}).topics == {"H": ["U"]}
