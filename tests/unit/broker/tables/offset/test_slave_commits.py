"""What clients committed to a slave outlives its restart."""

import errno
import json
import os
from pathlib import PurePath

import pytest

from maxq.broker.tables.offset.slave_commits import SlaveCommit
from maxq.testing.sim_disk import SimDisk
from tests.unit.broker.broker_world import CONFIG_DIR, BrokerWorld

FILE = CONFIG_DIR / "slaveCommits.json"
AS_SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


def slave(before: BrokerWorld | None = None) -> BrokerWorld:
    world = BrokerWorld(AS_SLAVE, disk=before.disk) if before is not None else BrokerWorld(AS_SLAVE)
    world.offsets.load()
    return world


def test_commits_are_there_after_a_restart() -> None:
    world = slave()
    world.offsets.slave_commits.note("G", "T", 3, 12)
    world.offsets.slave_commits.note("x", "T@%RETRY%G", 0, 5, not_copied_of=70)
    world.offsets.persist()
    again = slave(world).offsets
    assert set(again.ahead_of_master({"T@G": {3: 11}})) == {
        SlaveCommit("T", "G", 3, 12),
        # the key's last @ parts topic and group, as in the table of offsets
        SlaveCommit("T@%RETRY%G", "x", 0, 5, not_copied_of=70),
    }


def test_what_the_master_knows_is_not_in_the_file_any_more() -> None:
    world = slave()
    world.offsets.slave_commits.note("G", "T", 3, 12)
    world.offsets.persist()
    assert world.offsets.ahead_of_master({"T@G": {3: 12}}) == []
    world.offsets.persist()
    assert len(slave(world).offsets.slave_commits) == 0


def test_the_last_commit_counts_also_if_it_is_the_smaller_one() -> None:
    commits = slave().offsets.slave_commits
    for offset in (12, 9):
        commits.note("G", "T", 3, offset)
    assert list(commits.ahead_of({})) == [SlaveCommit("T", "G", 3, 9)]


def test_what_is_committed_while_the_master_is_told_is_told_next() -> None:
    commits = slave().offsets.slave_commits
    commits.note("G", "T", 3, 12)
    (told,) = commits.ahead_of({})
    commits.note("G", "T", 3, 14)
    commits.drop(told)
    assert list(commits.ahead_of({"T@G": {3: 12}})) == [SlaveCommit("T", "G", 3, 14)]


def test_a_commit_names_the_operators_change_of_which_its_client_was_told() -> None:
    world = slave()
    commits = world.offsets.slave_commits
    for queue_id, hosts in enumerate((["a:1"], ["b:1"], ["a:1", "b:1"], ["b:1", "a:1"])):
        commits.note_reader("a:1", "G", "T", queue_id, 7)
        for offset, host in enumerate(hosts):
            commits.note("G", "T", queue_id, offset, host)
    expected = [SlaveCommit("T", "G", 0, 0, 7), SlaveCommit("T", "G", 1, 0), SlaveCommit("T", "G", 2, 1, 7),
                SlaveCommit("T", "G", 3, 1, 7)]  # fmt: skip
    assert list(commits.ahead_of({})) == expected
    world.offsets.persist()
    again = slave(world).offsets.slave_commits
    assert list(again.ahead_of({})) == expected
    again.note("G", "T", 0, 4, "a:2")
    assert next(again.ahead_of({})) == SlaveCommit("T", "G", 0, 4, 7), "the client has connected again"


def test_who_begins_at_the_commit_of_a_client_that_was_told_of_no_change_does_not_know_of_it() -> None:
    commits = slave().offsets.slave_commits
    commits.note("G", "T", 0, 5, "b:1")
    commits.note_reader("a:1", "G", "T", 0, 7)
    commits.note("G", "T", 0, 6, "a:1")
    (told,) = commits.ahead_of({})
    assert told == SlaveCommit("T", "G", 0, 6)
    commits.note_reader("a:1", "G", "T", 1, 7)
    commits.forget_keys({"T@G"})  # an operator has set them again
    commits.note("G", "T", 1, 9, "a:1")
    assert list(commits.ahead_of({})) == [SlaveCommit("T", "G", 1, 9)]


def test_what_was_committed_at_another_slave_by_who_had_not_heard_of_a_change_is_noted_as_such_here() -> None:
    offsets = BrokerWorld(AS_SLAVE | {"enableLmq": "true"}).offsets
    master = BrokerWorld().offsets
    for group in ("G", "%LMQ%g"):
        master.assign_reset_offsets("T", group, {0: 3})
    offsets.note_master({"masterSince": 70})
    offsets.commit_offset("c:1", "G", "T", 2, 9)
    page = {"offsetTable": {"T@G": {"0": 8, "1": 5, "2": 7}}, "lmqOffsetTable": {"T@%LMQ%g": 8}}
    unheard = {"T@G": [0, 2, 3], "T@%LMQ%g": [0], "T@other": [0]}
    offsets.take_back_from_slave(page, offsets.changes, unheard)
    offsets.note_unheard(page, unheard, lambda topic, queue_id: 8)
    offsets.took_back_from_slave(master.changes, set(unheard))
    assert offsets.unheard() == {"T@G": [0], "T@%LMQ%g": [0]}, "queue 2 has gone on here"
    offsets.note_unheard(page, unheard, lambda topic, queue_id: 7)
    assert {(one.offset, one.not_copied_of) for one in offsets.ahead_of_master({})} == {(8, 70)}


def test_a_broker_that_starts_as_master_has_nobody_to_tell() -> None:
    world = slave()
    world.offsets.slave_commits.note("G", "T", 3, 12)
    world.offsets.persist()
    master = BrokerWorld(disk=world.disk)
    master.offsets.load()
    assert len(master.offsets.slave_commits) == 0
    master.offsets.persist()
    assert json.loads(world.disk.read(FILE)) == {"offsetTable": {}}


def test_a_write_that_fails_is_made_up_for_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    world = slave()
    world.offsets.slave_commits.note("G", "T", 3, 12)

    def refuse(self: SimDisk, path: PurePath, data: bytes, *, private: bool = False) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    with monkeypatch.context() as full, pytest.raises(OSError, match="No space left"):
        full.setattr(SimDisk, "replace", refuse)
        world.offsets.persist()
    assert not world.disk.exists(FILE)
    world.offsets.persist()
    again = slave(world).offsets
    assert again.ahead_of_master({}) == [SlaveCommit("T", "G", 3, 12)]


def test_no_file_is_made_where_nothing_was_committed() -> None:
    world = slave()
    world.offsets.persist()
    assert not world.disk.exists(FILE)
