"""The compiled part of `store check` finds, in whatever is wrong, what the checks in Python find without it."""

import asyncio
import struct
import tempfile
from array import array
from collections.abc import Callable
from functools import cache
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

from maxq.protocol.message.java_hash import java_hash
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.store.log import record_cy as rc
from maxq.store.tools import check, check_cy, check_index, check_queues, queue_files
from maxq.store.tools.check import StoreCheck
from maxq.store.tools.log_walk import LogWalk
from maxq.testing.sim_clock import SimClock
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng
from tests.short_form import long_form
from tests.unit.both_forms import both, uncompiled
from tests.unit.store.stores import TestClock, delete_topics, message, opened, small_config
from tests.unit.store_tools.golden_stores import ROOT, golden_disk, open_files

GOLDEN = ("clean", "crashed", "crashed-flip", "crashed-torn", "ha/slave", "lmq-cqext", "timer", "dledger/n1")
_NAMES = ("Confirmation", "CheckedTopic", "ConfirmedUnits", "IndexCursor", "Window")


class Nothing(check_cy.Confirmation):
    """Confirms nothing: every record is left to the checks in Python."""

    def run(self, *_: object) -> int:
        return 0


class Counting(check_cy.Confirmation):
    """Counts what it confirms."""

    done = 0

    def run(self, *arguments: Any) -> int:
        count = super().run(*arguments)
        Counting.done += count
        return count


def found(disk: SimDisk, confirmation: type[check_cy.Confirmation], form: ModuleType = check_cy) -> dict[str, Any]:
    """The report of a check by these classes."""
    with mock.patch.object(check, "Confirmation", confirmation):
        patches = [
            mock.patch.object(module, name, getattr(form, name))
            for module in (check_queues, check_index, queue_files)
            for name in _NAMES
            if hasattr(module, name) and form is not check_cy
        ]
        for patch in patches:
            patch.start()
        try:
            return StoreCheck(open_files(disk)).run().to_json()
        finally:
            for patch in patches:
                patch.stop()


def agree(disk: SimDisk, *, also_uncompiled: bool = False) -> dict[str, Any]:
    """What both ways find; that it is the same is claimed."""
    whole = found(disk, Nothing)
    assert found(disk, check_cy.Confirmation) == whole
    if also_uncompiled:
        form = uncompiled("maxq.store.tools.check_cy")
        assert found(disk, form.Confirmation, form) == whole
    return whole


@cache
def _own_files(indexed: bool) -> dict[str, bytes]:
    """The files of a store with messages of every kind that the check treats by itself."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_write(Path(folder), indexed))
        return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


async def _write(folder: Path, indexed: bool) -> None:
    clock = TestClock()
    config = small_config(
        folder, index_tag_enable=True, message_index_enable=indexed, enable_multi_dispatch=True, enable_lmq=True
    )
    store = opened(config, clock)
    for number in range(220):
        clock.now_ms += 700 * (number % 5)
        more = [
            {"TAGS": f"t{number % 3}", "KEYS": f"k{number} other", "UNIQ_KEY": f"{number:032X}"},
            {"KEYS": "same same", "UNIQ_KEY": "same"},
            {"TAGS": "Größe", "KEYS": "schlüssel 键 😀", "UNIQ_KEY": f"U{number}"},
            {"colour": "red"},
            {"KEYS": " ".join(f"many{key}" for key in range(number % 90)), "TAGS": "many"},
        ][number % 5]
        one = message("T" if number % 2 else "Orders", number % 4, b"x" * (number % 50 + 1), **more)
        if number % 23 == 0:
            one.sys_flag = MessageSysFlag.TRANSACTION_COMMIT
        if number % 29 == 0:
            one.sys_flag = MessageSysFlag.TRANSACTION_PREPARED
        elif number % 31 == 0:
            one.properties["INNER_MULTI_DISPATCH"] = "%LMQ%a"
        assert store.put_message(one).ok
        if number == 100:
            await delete_topics(store, "T")
    await store.shutdown()


def own_disk(indexed: bool = True) -> SimDisk:
    disk = SimDisk(SimRng(1), SimClock(), write_back=0)
    for path, content in _own_files(indexed).items():
        disk.put(ROOT / path, content)
    return disk


def disk_of(name: str) -> SimDisk:
    return own_disk(name == "own") if name.startswith("own") else golden_disk(name)


NAMES = [*GOLDEN, "own", "own, no index"]


@pytest.mark.parametrize("name", NAMES)
def test_both_ways_find_the_same_in_stores_as_brokers_left_them(name: str) -> None:
    agree(disk_of(name), also_uncompiled=True)


@pytest.mark.parametrize("indexed", [True, False])
def test_a_good_store_has_no_faults_and_hardly_a_record_is_left_to_python(indexed: bool) -> None:
    disk = own_disk(indexed)
    Counting.done = 0
    report = found(disk, Counting)
    records = LogWalk(open_files(disk))
    assert [batch.count for batch in records.batches()] and Counting.done > records.records // 3
    kinds = {fault["file"].split("/")[0] for fault in report["faults"]}
    assert kinds == (set() if indexed else {"index"}), report["faults"]


def test_java_s_messages_are_confirmed_too() -> None:
    Counting.done = 0
    assert found(golden_disk("clean"), Counting)["ok"]
    assert Counting.done > 1443 * 0.9


def _used(content: bytes | bytearray) -> int:
    """How many bytes there are up to the last one that is not zero; 1 if all are."""
    return max(len(content.rstrip(b"\0")), 1)


def _flip(disk: SimDisk, rng: SimRng, kind: str) -> None:
    """Change one bit of what is used."""
    path = rng.choice(_paths(disk, kind))
    content = disk.read(ROOT.parent / path)
    used = _used(content)
    disk.flip_bit(PurePath(path), rng.below(min(used + 8, len(content))), rng.below(8))


def _blank(disk: SimDisk, rng: SimRng, kind: str) -> None:
    """Zeros, as a sector that was lost."""
    path = rng.choice(_paths(disk, kind))
    content = bytearray(disk.read(ROOT.parent / path))
    used = _used(content)
    start = rng.below(used)
    length = min(rng.between(1, 600), len(content) - start)
    content[start : start + length] = bytes(length)
    disk.put(PurePath(path), bytes(content))


def _swap(disk: SimDisk, rng: SimRng, kind: str) -> None:
    """Bytes of one place at another one."""
    path = rng.choice(_paths(disk, kind))
    content = bytearray(disk.read(ROOT.parent / path))
    used = _used(content)
    size = 20 if kind != "commitlog" else 100
    source, target = (rng.below(max(used // size, 1)) * size for _ in range(2))
    content[target : target + size] = content[source : source + size][: len(content) - target]
    disk.put(PurePath(path), bytes(content))


def _remove(disk: SimDisk, rng: SimRng, kind: str) -> None:
    """A file is gone."""
    disk.delete(ROOT.parent / rng.choice(_paths(disk, kind)))


def _paths(disk: SimDisk, kind: str) -> list[str]:
    found = disk.paths(f"store/{kind}/*")
    return found if found else disk.paths("store/*/data/*") or disk.paths("store/commitlog/*")


HARMS: tuple[Callable[[SimDisk, SimRng, str], None], ...] = (_flip, _flip, _flip, _blank, _swap, _remove)


KINDS = ("commitlog", "consumequeue", "index")
HARMED = [(name, kind, seed) for name in NAMES for kind in KINDS for seed in range(12)]


@pytest.mark.parametrize(("name", "kind", "seed"), [*HARMED[1::13], *long_form(HARMED, HARMED[1::13])])
def test_both_ways_find_the_same_in_stores_that_were_harmed(name: str, kind: str, seed: int) -> None:
    disk, rng = disk_of(name), SimRng(seed)
    for _ in range(1 + seed // 6):
        HARMS[rng.below(len(HARMS))](disk, rng, kind)
    agree(disk, also_uncompiled=seed % 6 == 0)


@pytest.mark.parametrize("bit", [*range(0, 64, 9), *long_form(range(64), range(0, 64, 9))])
def test_no_bit_of_a_queue_offset_which_no_crc_covers_deceives_it(bit: int) -> None:
    disk = own_disk()
    batch = next(LogWalk(open_files(disk)).batches())
    position = batch.rows[40 * rc.SCAN_WIDTH + rc.C_POSITION] + 20 + 7 - bit // 8
    disk.flip_bit(batch.file.path, position, bit % 8)
    assert agree(disk)["faults"]


@pytest.mark.parametrize("form", both("maxq.store.tools.check_cy"), ids=["uncompiled", "installed"])
def test_units_outside_the_window_and_topics_nobody_knows_are_left(form: ModuleType) -> None:
    window = form.Window()
    units = form.ConfirmedUnits(5, window)
    assert (units.last, units.has(5)) == (-1, False)
    units.add(7, 900)
    assert (units.has(5), units.has(7), units.has(8), units.has(4), units.last, units.last_physical) == (
        False, True, False, False, 7, 900,
    )  # fmt: skip
    window.show(memoryview(bytes(40)), 100)
    assert (window.begin, window.size) == (100, 40)
    window.clear()
    assert window.size == 0


#: Text, and bytes that are none.
TAGS = [
    "a", "Größe", "键", "😀", "\u07ff\u0800\uffff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe9", b"\x80"
]  # fmt: skip


@pytest.mark.parametrize("form", both("maxq.store.tools.check_cy"), ids=["uncompiled", "installed"])
@pytest.mark.parametrize("tag", TAGS)
def test_a_tag_is_hashed_as_java_does_or_left(form: ModuleType, tag: str | bytes) -> None:
    text = tag if isinstance(tag, bytes) else tag.encode()
    body = b"TAGS\x01" + text
    record = b"T" + body
    row = [0] * rc.SCAN_WIDTH
    for column, value in {
        rc.C_SIZE: 200, rc.C_TOPIC_POSITION: 0, rc.C_TOPIC_SIZE: 1, rc.C_PROPERTIES_POSITION: 1,
        rc.C_PROPERTIES_SIZE: len(body),
    }.items():  # fmt: skip
        row[column] = value
    window = form.Window()
    code = java_hash(text.decode("utf-8", "replace"))
    window.show(memoryview(struct.pack(">qiq", 0, 200, code)), 0)
    confirmation = form.Confirmation(())
    confirmation.topics[b"T"] = form.CheckedTopic({0: form.ConfirmedUnits(0, window)}, java_hash("T#"), 0, False)
    assert confirmation.run(memoryview(record), array("q", row), 0, 1, False) == isinstance(tag, str)
