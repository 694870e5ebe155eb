"""`maxq store …` as a user sees it, on working copies of the golden stores."""

import json
import os
import struct
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from maxq.cli.commands.store import app
from maxq.runtime.files.system import SystemClock, SystemDisk
from maxq.store.tools.recover import recover
from maxq.store.tools.store_files import StoreFiles
from tests.golden import restore
from tests.unit.store_tools.golden_stores import expected


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Sizes, times and contents: what a tool that only reads must not change."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            facts = path.stat()
            content = path.read_bytes() if facts.st_size < 1 << 20 else b""
            found[str(path.relative_to(folder))] = (facts.st_size, facts.st_mtime_ns, content)
    return found


def test_messages_prints_one_json_object_a_line(tmp_path: Path) -> None:
    store = restore("clean", tmp_path / "store")
    result = run("messages", store, "--json")
    assert result.exit_code == 0
    assert [json.loads(line) for line in result.stdout.splitlines()] == expected("clean")["records"]
    plain = run("messages", store)
    assert len(plain.stdout.splitlines()) == len(expected("clean")["records"])
    assert plain.stdout.splitlines()[0].split("\t")[:5] == ["0", "353", "Gd_Simple", "3", "0"]


def test_offsets_prints_a_list(tmp_path: Path) -> None:
    result = run("offsets", restore("lmq-cqext", tmp_path / "store"), "--json")
    found = json.loads(result.stdout)
    assert {"topic": "%LMQ%Gd_q1", "queueId": 0, "minOffset": 0, "maxOffset": 125} in found
    assert len(found) == 6


def test_check_tells_by_its_exit_code(tmp_path: Path) -> None:
    good = run("check", restore("clean", tmp_path / "a" / "store"))
    assert (good.exit_code, good.stdout.splitlines()[-1].endswith("no faults")) == (0, True)
    bad = run("check", restore("crashed-flip", tmp_path / "b" / "store"))
    assert bad.exit_code == 1
    assert bad.stdout.startswith("commitlog/00000000000000262144: byte 246631: ")
    as_json = json.loads(run("check", tmp_path / "b" / "store", "--json").stdout)
    assert as_json["ok"] is False
    assert (as_json["faults"][0]["file"], as_json["faults"][0]["position"]) == (
        "commitlog/00000000000000262144",
        246631,
    )


def test_check_takes_a_broker_conf(tmp_path: Path) -> None:
    store = restore("clean", tmp_path / "store")
    assert run("check", store, "--conf", store / "broker.conf").exit_code == 0
    wrong = run("check", store, "--hash-slots", "500", "--index-entries", "1800")
    assert wrong.exit_code == 1
    assert "500 slots and 1800 entries make 38040" in wrong.stdout


def test_recover_makes_a_damaged_store_whole_and_says_what_it_did(tmp_path: Path) -> None:
    store = restore("crashed-flip", tmp_path / "store")
    result = run("recover", store)
    assert result.exit_code == 0
    assert "damage: commitlog/00000000000000262144: 670 bytes at position 246631" in result.stdout
    after = run("check", store)
    assert after.exit_code == 0
    assert "1 damaged ranges" in after.stdout
    assert not (store / "abort").exists()
    assert len(run("messages", store).stdout.splitlines()) == 691


def test_recover_rebuild_repairs_a_changed_queue(tmp_path: Path) -> None:
    store = restore("clean", tmp_path / "store")
    queue = store / "consumequeue" / "Gd_Simple" / "0" / "00000000000000000000"
    content = bytearray(queue.read_bytes())
    content[205] ^= 4
    run("recover", store)
    queue.write_bytes(content)
    assert "Gd_Simple/0/00000000000000000000: byte 200: " in run("check", store).stdout
    assert run("recover", store, "--rebuild").exit_code == 0
    assert run("check", store).exit_code == 0
    found = json.loads(run("recover", store, "--json").stdout)
    assert (found["cleanExit"], found["logEnd"], found["damages"]) == (True, 1160214, [])


@pytest.mark.parametrize("rebuild", [[], ["--rebuild"]], ids=["plain", "rebuild"])
def test_recover_touches_nothing_of_a_store_whose_broker_runs(rebuild: list[str], tmp_path: Path) -> None:
    store = restore("clean", tmp_path / "store")
    lock = SystemDisk().lock(store / "lock", b"lock")
    before = snapshot(store)
    try:
        refused = run("recover", store, *rebuild)
    finally:
        lock.release()
    assert refused.exit_code == 2 and "another broker runs on this store" in refused.output
    assert snapshot(store) == before


@pytest.mark.parametrize(
    "name", ["clean", "no-index", "crashed", "crashed-flip", "crashed-torn", "crashed-no-index", "lmq-cqext", "timer",
             "ha/master", "ha/slave", "crashed-no-index-no-checkpoint", "dledger/n0", "dledger/n1"]
)  # fmt: skip
def test_rehearse_says_yes_to_java_stores_and_changes_nothing(name: str, tmp_path: Path) -> None:
    store = restore(name, tmp_path / "store")
    before = snapshot(store)
    result = run("rehearse", store)
    assert result.exit_code == 0, result.stdout
    assert result.stdout.splitlines()[-1].startswith("yes: ")
    assert snapshot(store) == before


def test_rehearse_compares_the_queues_of_batch_topics_as_well(tmp_path: Path) -> None:
    store = restore("clean", tmp_path / "store")
    queues = [folder for name in ("consumequeue", "batchconsumequeue") for folder in (store / name).glob("*/*")]
    whole = json.loads(run("rehearse", store, "--json").stdout)
    assert whole["queues"] == len(queues)
    assert whole["equal"] == whole["units"] and whole["repaired"] == 0
    (file,) = (store / "batchconsumequeue" / "Gd_Bcq" / "0").iterdir()
    units = sum(size > 0 for _, size, *_ in struct.iter_unpack(">qiqqqhii", file.read_bytes()))
    assert units
    with file.open("r+b") as changed:
        changed.truncate(0)
        changed.truncate(46 * 100)
    without = json.loads(run("rehearse", store, "--json").stdout)
    assert without["queues"] == len(queues) and without["units"] == whole["units"] - units
    assert (without["answer"], without["repaired"]) == ("yes", units)


def test_a_copy_of_a_store_is_read_and_recovered_itself_though_broker_conf_names_the_original(tmp_path: Path) -> None:
    original = restore("crashed-torn", tmp_path / "original")
    copy = restore("crashed-torn", tmp_path / "copy")
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={original}\nstorePathCommitLog={original}/commitlog\n")
    before = snapshot(original), snapshot(copy)
    rehearsed = run("rehearse", copy, "--conf", conf)
    assert (rehearsed.exit_code, rehearsed.stdout.splitlines()[-1][:5]) == (0, "yes: "), rehearsed.output
    assert (snapshot(original), snapshot(copy)) == before
    assert run("check", copy, "--conf", conf).exit_code == 1, "the end of the log is torn"
    assert run("recover", copy, "--conf", conf).exit_code == 0
    assert run("check", copy, "--conf", conf).exit_code == 0
    assert snapshot(original) == before[0]
    for file in (original / "commitlog").iterdir():
        file.unlink()
    assert len(run("messages", copy, "--conf", conf).stdout.splitlines()) > 100


def test_a_log_outside_of_the_store_is_rehearsed_and_belongs_to_no_copy_of_the_store(tmp_path: Path) -> None:
    store = restore("crashed-torn", tmp_path / "store")
    log = tmp_path / "other-disk" / "log"
    log.parent.mkdir()
    (store / "commitlog").rename(log)
    conf = tmp_path / "broker.conf"
    conf.write_text(f"storePathRootDir={store}\nstorePathCommitLog={log}\n")
    before = snapshot(tmp_path)
    result = run("rehearse", store, "--conf", conf)
    assert result.exit_code == 0, result.output
    *_, last = result.stdout.splitlines()
    assert last.startswith("yes: ") and not last.startswith("yes: 0 queues")
    assert snapshot(tmp_path) == before
    (copy := tmp_path / "copy").mkdir()
    (copy / "checkpoint").write_bytes((store / "checkpoint").read_bytes())
    for command in ("messages", "check", "recover", "rehearse"):
        refused = run(command, copy, "--conf", conf)
        assert refused.exit_code == 2, refused.output
        assert f"broker.conf is for the store {store} and has its log elsewhere" in refused.output
    assert snapshot(log) == {
        file: kept for file, kept in snapshot(log).items() if before[f"other-disk/log/{file}"] == kept
    }


def test_rehearse_says_no_and_why(tmp_path: Path) -> None:
    store = restore("clean", tmp_path / "store")
    os.truncate(store / "commitlog" / "00000000000000262144", 1000)
    result = run("rehearse", store, "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["answer"] == "no"
    assert "00000000000000262144" in found["obstacles"][0]


def test_recover_makes_the_queues_of_a_dledger_member_complete_that_java_leaves_with_gaps(tmp_path: Path) -> None:
    store = restore("dledger/n0", tmp_path / "store")
    assert run("check", store).exit_code == 1, "14 messages are not in the queues Java left"
    assert run("recover", store).exit_code == 0
    result = run("check", store)
    assert (result.exit_code, "470 messages, 470 queue units" in result.stdout) == (0, True), result.stdout
    assert run("offsets", store).stdout.split() == ["Gd_Raft", "0", "0", "235", "Gd_Raft", "1", "0", "235"]


@pytest.mark.parametrize("kind", ["clean", "crashed-flip", "dledger/n0"])
def test_a_recovery_tells_how_far_it_has_come(kind: str, tmp_path: Path) -> None:
    files = StoreFiles(SystemDisk(), restore(kind, tmp_path / "store"))
    told: list[tuple[str, int, int]] = []
    report = recover(files, SystemClock(), rebuild=True, progress=lambda *one: told.append(one))
    for what in {what for what, _, _ in told}:
        done = [done for named, done, _ in told if named == what]
        (total,) = {total for named, _, total in told if named == what}
        assert done == sorted(done) and done[0] >= 0 and done[-1] == total, what
    built = [one for one in told if one[0] == "building queues and index"]
    assert built[-1][2] >= report.end_offset - report.min_offset and report.dispatched_records > 400
    assert len(built) >= len(files.log), "each file of the log is a step at least"
    if kind != "dledger/n0":  # whose log is opened by its group
        assert "checking the log" in {what for what, _, _ in told}


def test_a_folder_that_is_no_store_is_refused(tmp_path: Path) -> None:
    for command in ("messages", "offsets", "check", "recover", "rehearse"):
        result = run(command, tmp_path)
        assert result.exit_code == 2
        assert "holds no store" in result.stderr
