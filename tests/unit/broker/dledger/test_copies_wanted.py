"""How many members must have a topic before it is acknowledged."""

import pytest

from maxq.broker.dledger.dledger_broker import copies_wanted


@pytest.mark.parametrize(
    ("living", "wanted"),
    [
        ("", 1),  # no majority
        ("m", 1),
        ("mm", 2),
        ("mj", 1),  # a Java member never says that it has the tables
        ("jj", 0),
        ("j", 0),
    ],
)
def test_all_living_maxq_members_and_a_majority_with_java_members_counted_as_having_it(
    living: str, wanted: int
) -> None:
    live = {f"n{number}": kind == "m" for number, kind in enumerate(living, start=1)}
    assert copies_wanted(live, quorum=2) == wanted
