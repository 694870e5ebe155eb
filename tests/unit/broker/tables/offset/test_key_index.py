"""The index of offset keys."""

from maxq.broker.tables.offset.offset_table import KeyIndex


def test_keys_that_came_are_found_by_topic_and_group_in_their_order() -> None:
    index = KeyIndex(["T@G", "T@H"])
    index.add("U@G")
    index.add("T@G")
    assert list(index.topics["G"]) == ["T", "U"] and list(index.groups["T"]) == ["G", "H"]
    assert index.of_topic("T") == ["T@G", "T@H"] and index.of_group("G") == ["T@G", "U@G"]


def test_keys_that_went_are_not_found() -> None:
    index = KeyIndex(["T@G", "T@H"])
    index.remove("T@G")
    index.add("V@H")
    assert list(index.topics) == ["H"] and index.of_group("H") == ["T@H", "V@H"]
    assert index.of_topic("U") == index.of_group("G") == []
