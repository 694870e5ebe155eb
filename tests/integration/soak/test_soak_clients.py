"""The short form of soak_clients: every role does its work, and none takes tens of megabytes for it."""

from pathlib import Path

from tests.integration.soak.soak_clients import soak


def test_clients_that_are_slower_than_what_comes_hold_no_more_with_time(tmp_path: Path) -> None:
    grown = soak(10, 2_000, 0.5, tmp_path, is_told=False)
    assert max(grown.values()) < 40 << 10, grown
