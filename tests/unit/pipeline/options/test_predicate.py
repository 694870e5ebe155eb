"""The option `predicate`: what readers are told of conditions that every wanted row meets."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In

from maxq.errors import ConfigError
from maxq.pipeline.options.option_values import OptionValues
from maxq.pipeline.options.predicate import ArrayContains, condition, given_conditions, predicate_option

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def parsed(text: str) -> list[Filter]:
    return given_conditions(OptionValues({"predicate": text}, "rocketmq"))


def test_conditions_come_back_as_they_were() -> None:
    conditions = [
        condition("tags", "in", ("a", "b")),
        condition("queueId", "=", 3),
        condition("storeTimestamp", ">", NOON),
        condition("keys", "contains", "k"),
    ]
    assert conditions == [
        In(("tags",), ("a", "b")),
        EqualTo(("queueId",), 3),
        GreaterThan(("storeTimestamp",), NOON),
        ArrayContains(("keys",), "k"),
    ]
    option = predicate_option(conditions)
    assert given_conditions(OptionValues(option, "rocketmq")) == conditions
    assert predicate_option([None]) == {} and given_conditions(OptionValues({}, "rocketmq")) == []


@pytest.mark.parametrize(
    ("column", "operator", "value"),
    [
        ("queueId", "=", "3"),
        ("queueId", "=", True),
        ("tags", "=", None),
        ("tags", "in", ()),
        ("tags", "in", ("a", 1)),
        ("tags", "like", "a"),
        ("tags", "contains", "a"),
        ("keys", "=", "a"),
        ("storeTimestamp", ">", datetime(2026, 1, 1)),  # no zone
        ("body", "=", b""),
        ("json", "=", "x"),
    ],
)
def test_what_readers_can_not_use_is_no_condition(column: str, operator: str, value: object) -> None:
    assert condition(column, operator, value) is None


@pytest.mark.parametrize(
    "text",
    ["queueId = 1", "{}", "[1]", '[["queueId", "="]]', '[["queueId", "=", "x"]]', '[["storeTimestamp", "<", -1]]',
     "null", '[[["tags"], "=", "x"]]', '[["storeTimestamp", "<", 1e300]]',
     '[["storeTimestamp", "<", 9223372036854775807]]'],
)  # fmt: skip
def test_what_is_no_list_of_conditions_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"rocketmq: option predicate is .*; it must be a JSON list of conditions"):
        parsed(text)
