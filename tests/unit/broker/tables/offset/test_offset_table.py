"""Tables of offsets as files and answers have them."""

import json
from typing import Any

import pytest

from maxq.broker.tables.offset.offset_table import (
    flat_row,
    group_topic_map,
    offset_file,
    offset_row,
    read_offset_table,
    split_key,
)
from maxq.errors import RemoteProtocolError


def test_the_group_is_behind_the_last_at_sign() -> None:
    assert split_key("T@G") == ("T", "G")
    assert split_key("T@odd@G") == ("T@odd", "G")


def test_topics_are_listed_by_group_in_their_order() -> None:
    assert group_topic_map(["T2@G", "T1@G", "T1@H"]) == {"G": ["T2", "T1"], "H": ["T1"]}


def test_rows_are_compact_json() -> None:
    assert offset_row("T@G", {0: 5, 3: 7}) == b'"T@G":{"0":5,"3":7}'
    assert offset_row("T@G", {}) == b'"T@G":{}'
    assert flat_row('a"b@G', 9) == b'"a\\"b@G":9'
    assert json.loads(b"{" + offset_row("ü\n@G", {1: 2}) + b"}") == {"ü\n@G": {"1": 2}}


def test_a_name_that_is_no_text_is_written_all_the_same() -> None:
    assert offset_row("\ud800@G", {0: 1}) == b'"?@G":{"0":1}'
    assert flat_row("\ud800@G", 1) == b'"?@G":1'
    assert b'"?":["x"]' in offset_file({"groupTopicMap": {"\ud800": ["x"]}})


def test_the_file_has_a_line_for_each_row() -> None:
    value = {
        "dataVersion": {"counter": 1},
        "groupTopicMap": {"G": ["T", "U"], "H": []},
        "lmqOffsetTable": {"L@G": 9, "M@G": 10},
        "offsetTable": {"T@G": {0: 5, 1: 6}, "U@G": {}},
        "empty": {},
    }
    assert offset_file(value).decode() == (
        '{\n\t"dataVersion":{\n\t\t"counter":1\n\t},\n'
        '\t"groupTopicMap":{\n\t\t"G":["T","U"],\n\t\t"H":[]\n\t},\n'
        '\t"lmqOffsetTable":{\n\t\t"L@G":9,\n\t\t"M@G":10\n\t},\n'
        '\t"offsetTable":{\n\t\t"T@G":{0:5,1:6},\n\t\t"U@G":{}\n\t},\n'
        '\t"empty":{}\n}'
    )


def test_numbers_may_stand_as_text() -> None:
    value = {"offsetTable": {"T@G": {"0": 5, 1: "6"}}}
    assert read_offset_table(value) == {"T@G": {0: 5, 1: 6}}
    assert read_offset_table({}) == {}


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"T@G": 5}, "offsets of T@G are an object, not int"),
        ({"T@G": {"x": 5}}, "offsets of T@G are numbers by queue id"),
        ({"T@G": {"0": None}}, "offsets of T@G are numbers by queue id"),
        ({"T@G": {"0": "x"}}, "offsets of T@G are numbers by queue id"),
    ],
)
def test_what_is_no_offset_is_refused_by_name(table: Any, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match=says):
        read_offset_table({"offsetTable": table})
