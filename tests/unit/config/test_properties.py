import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.config.properties import edit_properties, format_properties, parse_properties
from maxq.errors import ConfigError

# what java.util.Properties.load gives for each text (checked against a JVM)
JAVA = [
    ("a=1", {"a": "1"}),
    ("a = 1 ", {"a": "1 "}),
    ("a: 1", {"a": "1"}),
    ("a 1", {"a": "1"}),
    ("a\t=\t1", {"a": "1"}),
    ("a", {"a": ""}),
    ("=1", {"": "1"}),
    ("a==1", {"a": "=1"}),
    ("a = = 1", {"a": "= 1"}),
    ("# c\n! d\n  # e\na=1", {"a": "1"}),
    ("a=1\\\n   2", {"a": "12"}),
    ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
    ("a=1\\", {"a": "1"}),
    ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
    ("a=\\t\\n\\r\\f\\q", {"a": "\t\n\r\fq"}),
    ("a=\\u0041\\u00e9", {"a": "Aé"}),
    ("a\\ b\\=c=1", {"a b=c": "1"}),
    ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
    ("a=1\na=2", {"a": "2"}),
    ("\n\n  \n", {}),
    ("a=1\x0bb\u2028c", {"a": "1\x0bb\u2028c"}),
    ("p=C:\\\\dir", {"p": "C:\\dir"}),
]


@pytest.mark.parametrize(("text", "expected"), JAVA)
def test_parse_gives_what_java_gives(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_bytes_are_utf8_with_or_without_a_byte_order_mark() -> None:
    assert parse_properties("\ufeffname=Käse".encode()) == {"name": "Käse"}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"a=1\nb=\\u00g1", "file x, line 2"),
        (b"a=\\u12", "four hexadecimal digits"),
        (b"a=\xff\xfe", "not UTF-8"),
    ],
)
def test_what_is_no_properties_text_is_refused_with_its_place(data: bytes, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        parse_properties(data, source="file x")


@given(st.dictionaries(st.text(min_size=1), st.text()))
def test_formatted_text_parses_back_to_the_same_mapping(values: dict[str, str]) -> None:
    assert parse_properties(format_properties(values)) == values


@given(st.binary(max_size=200))
def test_any_bytes_give_a_mapping_or_a_config_error(data: bytes) -> None:
    try:
        parse_properties(data)
    except ConfigError:
        return


@given(
    st.text(alphabet="ab=:#!\\ \n\rtu04", max_size=60), st.dictionaries(st.text("abt", min_size=1), st.text("x\\ \n="))
)
def test_edit_changes_the_named_keys_and_nothing_else(text: str, changes: dict[str, str]) -> None:
    try:
        before = parse_properties(text)
    except ConfigError:
        return
    after = parse_properties(edit_properties(text, changes))
    before.pop("", None)  # Java reads a lone backslash at the end of a text as an empty key
    after.pop("", None)
    assert after == {**before, **changes}


def test_edit_keeps_comments_order_and_continued_lines() -> None:
    text = "# brokers\nbrokerName=a\nfileReservedTime = 4\\\n  8\n\n# end"
    edited = edit_properties(text, {"fileReservedTime": "72", "deleteWhen": "05"})
    assert edited == "# brokers\nbrokerName=a\nfileReservedTime=72\n\n# end\ndeleteWhen=05\n"


def test_edit_leaves_one_line_of_a_key_that_was_there_twice() -> None:
    assert edit_properties("a=1\nb=2\na=3\n", {"a": "4"}) == "b=2\na=4\n"


def test_only_blanks_that_would_be_lost_are_escaped() -> None:
    assert format_properties({"delays": " 1s 5s ", "a b": "=#"}) == "delays=\\ 1s 5s \na\\ b==#\n"
