"""Java's JSON dialect, read and written."""

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.errors import LocalProtocolError, RemoteProtocolError
from maxq.protocol.json import json_dialect
from maxq.protocol.json.json_dialect import MAX_DEPTH, dumps, dumps_pretty, loads
from maxq.protocol.message.message_queue import MessageQueue
from tests.golden import STORES

MQ = MessageQueue("T", "a", 0)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{0:"10.0.0.1:10911",1:"10.0.0.2:10911"}', {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"}),
        ('{"T@G":{0:12,1:9}}', {"T@G": {"0": 12, "1": 9}}),
        ('{{"brokerName":"a","queueId":0,"topic":"T"}:{"x":1}}', {MQ: {"x": 1}}),
        ('{ {"topic":"T", "queueId":0,"brokerName":"a"} : 12 }', {MQ: 12}),
        ('{{"z":1}:2}', {'{"z":1}': 2}),
        ("{'a':'b\\'c'}", {"a": "b'c"}),
        ('{"a":1,}', {"a": 1}),
        ("[1,2,]", [1, 2]),
        ("{broker-name:1,b_c:true}", {"broker-name": 1, "b_c": True}),
        ('// first\n{"a":/* c */1}// end', {"a": 1}),
        ('\ufeff{"a":1}', {"a": 1}),
        ('{"a":NaN}', {"a": None}),
        ('{a:-1.5e3,b:.5,c:+7,d:12L}', {"a": -1500.0, "b": 0.5, "c": 7, "d": 12}),
        ('{a:"\\u0001\\x41\\ud83d\\ude00"}', {"a": "\x01A😀"}),
        ('{a:"\\ud83d"}', {"a": "?"}),
        ("", None),
    ],
)  # fmt: skip
def test_what_java_writes_and_accepts_is_read(text: str, value: Any) -> None:
    if value is None:
        with pytest.raises(RemoteProtocolError):
            loads(text)
        return
    assert loads(text) == value
    assert loads(text.encode()) == value
    assert loads(memoryview(text.encode())) == value


@pytest.mark.parametrize(
    "text",
    ["{", "[", '{"a"', '{"a":', '{"a":1 "b":2}', "[1 2]", '"a', "'", "{a:b}", "{:1}", '{"a":"\\q"}', '{a:"\\u12"}',
     "1 2", "/*", "{a:/}", "-", "{a:1}}", "\\", "{a:--1}"],
)  # fmt: skip
def test_what_is_not_even_that_is_a_remote_protocol_error_with_a_position(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=r"not JSON: .* at character"):
        loads(text)


def test_bytes_that_are_not_utf8_are_replaced_as_java_does() -> None:
    assert loads(b'{"a":"\xff\xfe"}') == {"a": "\ufffd\ufffd"}


@pytest.mark.parametrize("opener", ["[", "{a:", "{{a:1}:"])
def test_deep_nesting_is_refused_before_the_stack_ends(opener: str) -> None:
    with pytest.raises(RemoteProtocolError, match=f"deeper than {MAX_DEPTH}"):
        loads(opener * 100_000)


@pytest.mark.parametrize(
    "text",
    ["[" * 50_000 + "]" * 50_000 + ",", "{" * 50_000, "/*" * 100_000, "//" * 100_000, ("1" * 200_000) + "x",
     "'" + "\\u0041" * 50_000, "[" + ",".join(["'a'"] * 50_000), "{" + "a" * 200_000, " " * 200_000 + "{",
     "," * 200_000, "[" + "," * 200_000, "{b:{\"$ref\":\"$" + ".a" * 50_000 + "\"}}"],
)  # fmt: skip
def test_long_rubbish_ends_quickly(text: str) -> None:
    started = time.process_time()
    with pytest.raises(RemoteProtocolError):
        loads(text)
    assert time.process_time() - started < 2


def test_references_of_fastjson_1_are_resolved() -> None:
    text = '{"a":{"x":[{"y":1},2]},"b":{"$ref":"$.a"},"c":[{"$ref":"$.a.x[0]"}],"d":{"$ref":"$.b.x[0].y"}}'
    assert loads(text) == {"a": {"x": [{"y": 1}, 2]}, "b": {"x": [{"y": 1}, 2]}, "c": [{"y": 1}], "d": 1}


def test_references_into_tables_with_queue_keys_are_resolved() -> None:
    text = (
        '{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:{"x":1}},'
        '"other":{"$ref":"$.offsetTable.MessageQueue\\\\ \\\\[topic\\\\=T\\\\,\\\\ brokerName\\\\=a\\\\,'
        '\\\\ queueId\\\\=0\\\\]"}}'
    )
    assert loads(text)["other"] == {"x": 1}


@pytest.mark.parametrize(
    "text",
    ['{"a":{"$ref":"$"}}', '{"a":{"b":{"$ref":"$.a"}}}', '{"a":{"$ref":"$.b"},"b":{"q":{"$ref":"$.a"}}}',
     '{"a":{"$ref":"$.nothing"}}', '{"a":{"$ref":".."}}', '{"a":{"$ref":"@"}}', '{"a":[{"$ref":"$.a"}]}',
     '{"a":{"$ref":"$x"}}', '{"a":[1],"b":{"$ref":"$.a[7]"}}'],
)  # fmt: skip
def test_references_in_a_circle_forwards_or_to_nothing_are_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError):
        loads(text)


def test_references_cannot_blow_up_memory() -> None:
    """Each level names the one before twice; a copying resolver would make 2**40 objects."""
    levels = ['"l0":{"x":1}'] + [f'"l{i}":[{{"$ref":"$.l{i - 1}"}},{{"$ref":"$.l{i - 1}"}}]' for i in range(1, 41)]
    value = loads("{" + ",".join(levels) + "}")
    assert value["l40"][0] is value["l40"][1] is value["l39"]


def test_compact_form_has_quoted_integer_keys_and_object_keys() -> None:
    assert dumps({"brokerAddrs": {0: "a:1"}, "x": [1, None, 1.5, True]}) == (
        b'{"brokerAddrs":{"0":"a:1"},"x":[1,null,1.5,true]}'
    )
    assert dumps({"t": {MQ: 12, 3: "é"}, "b": b"\x01", "s": {"b", "a"}, "e": {}, "l": []}) == (
        '{"t":{{"brokerName":"a","queueId":0,"topic":"T"}:12,"3":"é"},"b":"AQ==","s":["a","b"],"e":{},"l":[]}'.encode()
    )


def test_pretty_form_is_that_of_javas_config_files() -> None:
    value = {"offsetTable": {"T@G": {0: 12, 1: 9}, "E@G": {}}, "list": ["a", "b"], "rows": [{"x": 1}], "none": []}
    assert dumps_pretty(value).decode() == (
        '{\n\t"offsetTable":{\n\t\t"T@G":{\n\t\t\t0:12,\n\t\t\t1:9\n\t\t},\n\t\t"E@G":{}\n\t},\n\t"list":["a","b"],\n'
        '\t"rows":[\n\t\t{\n\t\t\t"x":1\n\t\t}\n\t],\n\t"none":[]\n}'
    )


@pytest.mark.parametrize("value", [object(), {"a": object()}, {MQ: 1 << 70}])
def test_what_has_no_json_form_is_our_own_fault(value: Any) -> None:
    with pytest.raises(LocalProtocolError):
        dumps(value)


def test_writing_a_circle_is_refused() -> None:
    circle: dict[Any, Any] = {MQ: 1}
    circle["self"] = circle
    with pytest.raises(LocalProtocolError, match="deeper"):
        dumps(circle)


def test_many_references_into_a_big_table_end_quickly() -> None:
    rows = ",".join(f'{{"brokerName":"a","queueId":{i},"topic":"T"}}:{i}' for i in range(5000))
    path = "$.t.MessageQueue \\\\[topic=T, brokerName=a, queueId=4999\\\\]"
    text = '{"t":{' + rows + '},"r":[' + ",".join([f'{{"$ref":"{path}"}}'] * 5000) + "]}"
    started = time.process_time()
    assert loads(text)["r"] == [4999] * 5000
    assert time.process_time() - started < 2


def test_every_config_file_java_wrote_is_read_and_most_come_out_byte_for_byte() -> None:
    same = 0
    paths = [path for path in STORES.rglob("config/*") if path.is_file() and path.read_bytes()[:1] == b"{"]
    assert len(paths) > 50
    for path in paths:
        value = loads(path.read_bytes())
        again = dumps_pretty(value)
        assert loads(again) == value
        same += again == path.read_bytes()
    # the others have maps with integer keys, which 5.3 writes on one line and 5.5 (and we) do not
    assert same > len(paths) / 2


int64 = st.integers(-(1 << 63), (1 << 63) - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
json_values = st.recursive(
    st.none() | st.booleans() | int64 | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(texts.filter(lambda key: key != "$ref"), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(json_values)
def test_standard_json_is_read_as_the_standard_library_reads_it(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=True)
    assert loads(text) == value
    assert json_dialect._Parser(text).parse() == value
    assert json_dialect._Parser(json.dumps(value, ensure_ascii=False, indent=1)).parse() == value


@given(json_values)
def test_both_written_forms_read_back(value: Any) -> None:
    assert loads(dumps(value)) == value
    assert loads(dumps_pretty(value)) == value
    assert json_dialect._Writer(quote_integers=True, indent=None).write(value) == dumps(value)
    assert json_dialect._Writer(quote_integers=False, indent="\t").write(value) == dumps_pretty(value)


tables = st.dictionaries(
    texts | st.just('": '), st.dictionaries(texts, texts | int64 | st.just({}) | st.just("\n  }")), max_size=4
)


@given(tables | st.dictionaries(texts, tables, max_size=3))
def test_tables_take_the_fast_way_to_the_same_pretty_form(value: Any) -> None:
    assert json_dialect._pretty_by_orjson(value) == json_dialect._Writer(quote_integers=False, indent="\t").write(value)


def test_queues_and_bodies_inside_a_pretty_file_have_their_wire_names() -> None:
    assert dumps_pretty({"a": {"b": MQ}}) == dumps_pretty({"a": {"b": MQ.to_json()}})


@given(st.text("{}[]:,'\"\\/*0a1u$ref-.e \n", max_size=60))
def test_any_text_gives_a_value_or_the_protocol_error(text: str) -> None:
    with contextlib.suppress(RemoteProtocolError):
        loads(text)


@given(st.binary(max_size=60))
def test_any_bytes_give_a_value_or_the_protocol_error(data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        loads(data)
