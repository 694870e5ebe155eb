"""The programs in examples/ do what they claim, here with fewer messages. Each raises if one is lost, wrong or twice.

Those that kill brokers are slow: what they show is held by tests of their own (test_ha_torture.py and others).
"""

from pathlib import Path

import pytest
from examples import elected_master, master_and_slave, python_source


@pytest.mark.slow
def test_a_slave_serves_readers_while_its_master_is_dead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, count in (("BEFORE", 4000), ("HALF", 2000), ("AFTER", 500)):
        monkeypatch.setattr(master_and_slave, name, count)
    master_and_slave.example(tmp_path)


@pytest.mark.slow
def test_a_group_elects_another_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elected_master, "KILLS", 1)
    monkeypatch.setattr(elected_master, "LOAD_SECONDS", 0.3)
    elected_master.example(tmp_path)


def test_every_line_comes_back_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_source, "MESSAGES", 4000)
    monkeypatch.setattr(python_source, "AFTER_RESTART", 1000)
    monkeypatch.setattr(python_source, "archive_and_ask", lambda *_: 5000)  # Spark has tests of its own
    monkeypatch.setattr(python_source, "CHUNK", 1000)
    python_source.example(tmp_path)
