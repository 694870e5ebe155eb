"""One seed, one story of a store, as in crash_story.py, whose operator changes its settings between one start and the
next.

Some settings may change at any time: how it is flushed, whether keys and tags are indexed and how large the index files
are, check sums of properties, light queues, extension units and the size of their files, what is kept and for how long.
What a setting cannot do is refused: with another size of the log's files, or of the queues', the start says so, names
the setting, and leaves every file as it was. In between the store is a slave that nobody is the master of, or lacks its
checkpoint, has an old one, lacks its inventory, or the file `abort` stands there, or, after a kill, does not.

Beside the rules of crash_story.py: no queue gives an offset a second time; light queues have every message that names
them and was sent while they were taken; with an index every durable message is found, whenever it was sent.
"""

from dataclasses import replace
from pathlib import PurePath
from typing import Any, ClassVar

from maxq.errors import StoreRefusedError
from maxq.store.message_store import MessageStore
from maxq.store.recovery.recovery_report import RecoveryReport
from maxq.testing.sim_disk import SimDisk
from maxq.testing.sim_rng import SimRng
from tests.simulation.store.crash_story import CrashStory
from tests.simulation.store.ext_story import ExtStory
from tests.simulation.store.faulty_store_story import FaultyCrashStory, FaultyWorkload
from tests.simulation.store.store_world import HASH_SLOTS, INDEX_ENTRIES, LOG_FILE_SIZE, ROOT, new_store
from tests.simulation.store.workload import QUEUES, TOPICS, Workload

_LIGHT_QUEUES = ("%LMQ%a", "%LMQ%b,%LMQ%a", "%LMQ%c")
_CHECKPOINT = ROOT / "checkpoint"
_INVENTORY = ROOT / "inventory.json"
_ABORT = ROOT / "abort"
_LOSSES = ("checkpoint lost", "an old checkpoint", "inventory lost", "abort file made", "abort file lost")


class LightWorkload(Workload):
    """Some messages name light queues, taken or not."""

    def _more_properties(self) -> dict[str, str]:
        rng = self._rng.fork(f"light {self._number}")
        return {"INNER_MULTI_DISPATCH": rng.choice(_LIGHT_QUEUES)} if rng.chance(0.2) else {}


class FaultyLightWorkload(FaultyWorkload, LightWorkload):
    """See the bases."""


def drawn_settings(rng: SimRng) -> dict[str, Any]:
    """What a start may have other than the one before."""
    return {
        "flush_disk_type": rng.choice(("SYNC_FLUSH", "ASYNC_FLUSH")),
        "flush_interval_commit_log": rng.choice((20, 500)),
        "flush_interval_consume_queue": rng.choice((20, 1000)),
        "flush_commit_log_thorough_interval": rng.choice((50, 10_000)),
        "flush_consume_queue_thorough_interval": rng.choice((50, 60_000)),
        "file_reserved_time": rng.choice((1, 48)),
        "message_index_enable": rng.chance(0.6),
        "message_index_safe": rng.chance(0.3),
        "index_tag_enable": rng.chance(0.3),
        "max_hash_slot_num": rng.choice((HASH_SLOTS, HASH_SLOTS, 20)),
        "max_index_num": rng.choice((INDEX_ENTRIES, INDEX_ENTRIES, 25)),
        "enabled_append_prop_crc": rng.chance(0.4),
        "force_verify_prop_crc": rng.chance(0.4),
        "enable_lmq": True,
        "enable_multi_dispatch": rng.chance(0.5),
    }


class _OtherSettings(CrashStory):
    """See the module."""

    WORKLOAD: ClassVar[type[Workload]] = LightWorkload

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.config = replace(self.config, **drawn_settings(self.rng.fork("settings at first")))
        self._may_verify = True  # a changed bit may have left a record that contradicts the check sum of its properties
        self._numbers: dict[tuple[str, int], tuple[int, int]] = {}  # queue → incarnation, offset behind its last one
        self._old_checkpoints: list[bytes] = []
        self._only_killed = False  # the last process ended by a kill: the disk has all that it wrote

    def _live(self, life: int, ending: str) -> None:
        rng = self.rng.fork(f"settings {life}")
        if self._flip is None and not self._is_first:
            self._have_it_refused(rng.fork("refused"))
            self._lose_a_small_file(rng.fork("lost"))
            self._be_a_slave(rng.fork("slave"))
        if rng.chance(0.7):
            self._change_settings(rng)
        if not self._may_verify:
            self.config = replace(self.config, force_verify_prop_crc=False)
        if self.disk.exists(_CHECKPOINT):
            self._old_checkpoints.append(self.disk.read(_CHECKPOINT))
        self._only_killed = False
        super()._live(life, ending)

    def _note_kill(self, store: MessageStore) -> None:
        super()._note_kill(store)
        self._only_killed = store.flusher.failure is None and store.queue_flusher.failure is None

    def _note_power_loss(self) -> None:
        super()._note_power_loss()
        self._only_killed = False

    @property
    def _is_first(self) -> bool:
        return not self.disk.exists(_CHECKPOINT)

    def _change_settings(self, rng: SimRng) -> None:
        drawn = drawn_settings(rng)
        changed = {name: value for name, value in drawn.items() if getattr(self.config, name) != value}
        self.config = replace(self.config, **drawn)
        self.history.append(f"other settings: {changed}")
        self.marks |= {f"other: {name}" for name in changed}

    # -- what is refused --

    def _have_it_refused(self, rng: SimRng) -> None:
        """Start with file sizes that the store was not made with."""
        if not rng.chance(0.4):
            return
        log = [path for path in self.disk.paths("store/commitlog/*") if self.disk.read(PurePath(path))]
        queues = [path for path in self.disk.paths("store/consumequeue/*") if self.disk.read(PurePath(path))]
        size = self.config.mapped_file_size_consume_queue
        if log and rng.chance(0.6):
            name, setting = "mappedFileSizeCommitLog", "mapped_file_size_commit_log"
            other = rng.choice((LOG_FILE_SIZE // 2, LOG_FILE_SIZE * 2, LOG_FILE_SIZE + 4096))
        elif len(queues) > 1:
            name, setting = "mappedFileSizeConsumeQueue", "mapped_file_size_consume_queue"
            other = rng.choice([units * 20 for units in (5, 10, 20, 50) if units * 20 != size])
        else:
            return
        before = _contents(self.disk)
        store = new_store(replace(self.config, **{setting: other}), self.disk, self.clock)  # type: ignore[arg-type]
        try:
            store.load()
        except StoreRefusedError as refusal:
            assert name in str(refusal), f"the refusal does not name the setting: {refusal}"
        else:
            raise AssertionError(f"a start with {name}={other} is not refused")
        after = _contents(self.disk)
        changed = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
        assert not changed, f"a start that was refused has changed {changed}"
        self.marks.add(f"refused: {name}")
        self.history.append(f"refused: {name}={other}")

    # -- small files --

    def _lose_a_small_file(self, rng: SimRng) -> None:
        if not rng.chance(0.25):
            return
        what = rng.choice(_LOSSES)
        if what == "checkpoint lost" and self.disk.exists(_CHECKPOINT):
            self.disk.delete(_CHECKPOINT)
        elif what == "an old checkpoint" and self._old_checkpoints:
            self.disk.write(_CHECKPOINT, rng.choice(self._old_checkpoints))
        elif what == "inventory lost" and self.disk.exists(_INVENTORY):
            self.disk.delete(_INVENTORY)
        elif what == "abort file made" and not self.disk.exists(_ABORT):
            self.disk.write(_ABORT, b"")
        elif what == "abort file lost" and self._only_killed and self.disk.exists(_ABORT):
            self.disk.delete(_ABORT)
        else:
            return
        self.marks.add(what)
        self.history.append(what)

    # -- the role --

    def _be_a_slave(self, rng: SimRng) -> None:
        """Be a slave for a while, with no master anywhere."""
        if not rng.chance(0.15):
            return
        store = new_store(replace(self.config, broker_role="SLAVE"), self.disk, self.clock)
        report = store.load()
        self.marks.add("was a slave")
        self.history += ["as a slave:", *(f"  {line}" for line in report.lines())]
        if report.end_offset <= report.min_offset:
            self._numbers.clear()  # an empty slave begins anew: its master's messages say how far numbering is
        if rng.chance(0.5):
            store.close()
        self.disk = self.disk.boot()

    # -- rules --

    def _flip_a_bit(self) -> None:
        """Flips know the shape of the index files, and what becomes of them without check sums of properties."""
        config = self.config
        if config.message_index_enable and (config.max_hash_slot_num, config.max_index_num) == (
            HASH_SLOTS, INDEX_ENTRIES,
        ):  # fmt: skip
            self._may_verify = False
            self.config = replace(self.config, force_verify_prop_crc=False)
            super()._flip_a_bit()

    def _verify(self, store: MessageStore, report: RecoveryReport) -> bool:
        if not super()._verify(store, report):
            self._numbers.clear()
            self._old_checkpoints.clear()
            self._may_verify = True
            return False
        self._verify_numbers(store)
        return True

    def _verify_numbers(self, store: MessageStore) -> None:
        for sent in self.ledger.durable():
            made_at = self._made_at(store, sent.topic)
            if sent.physical_offset > made_at:
                before = self._numbers.get((sent.topic, sent.queue_id), (-1, 0))
                end = sent.queue_offset + 1
                self._numbers[sent.topic, sent.queue_id] = made_at, max(end, before[1] if before[0] == made_at else 0)
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                made_at, end = self._numbers.get((topic, queue_id), (-1, 0))
                if made_at == self._made_at(store, topic):
                    found = store.max_offset(topic, queue_id)
                    assert found >= end, f"{topic}/{queue_id} was numbered up to {end}, and goes on at {found}"

    def _made_at(self, store: MessageStore, topic: str) -> int:
        """Where the topic was deleted last. A loss of power may take the record that says so and leave messages behind
        it, which are numbered from 0 again."""
        undone = (row.physical_offset for row in self.ledger.undone if row.topic == topic)
        return max(store.incarnation(topic), *undone, 0)

    def _verify_rebuild(self) -> None:
        """From nothing but the log nobody knows that there were light queues, unless the settings say so."""
        config, self.config = self.config, replace(self.config, enable_multi_dispatch=True)
        super()._verify_rebuild()
        self.config = config

    def _verify_keys(self, store: MessageStore) -> None:
        if self.config.message_index_enable:
            super()._verify_keys(store)


class SettingsStory(_OtherSettings):
    """See the module."""


class FaultySettingsStory(_OtherSettings, FaultyCrashStory):
    """The same on a disk of which every call can fail."""

    WORKLOAD: ClassVar[type[Workload]] = FaultyLightWorkload


class ExtSettingsStory(_OtherSettings, ExtStory):
    """The same of a store with ConsumeQueueExt, which is switched off and on, whose files get another size, and are
    lost."""

    def _change_settings(self, rng: SimRng) -> None:
        super()._change_settings(rng)
        ext = rng.fork("extensions")
        drawn = {
            "enable_consume_queue_ext": ext.chance(0.7),
            "mapped_file_size_consume_queue_ext": ext.choice((1024, 2048, 8192)),
        }
        self.config = replace(self.config, **drawn)  # type: ignore[arg-type]
        self.history.append(f"other settings: {drawn}")

    def _lose_a_small_file(self, rng: SimRng) -> None:
        super()._lose_a_small_file(rng)
        ext = rng.fork("extensions")
        if ext.chance(0.2):
            paths = self.disk.paths("store/consumequeue_ext/*")
            for path in paths if ext.chance(0.5) else [ext.choice(paths)] if paths else []:
                self.disk.delete(PurePath(path))
            self.marks.add("extension files lost")
            self.history.append("extension files lost")

    def _verify_rebuild(self) -> None:
        if "extension files lost" not in self.marks:  # without them the queues do not tell tags
            super()._verify_rebuild()


def _contents(disk: SimDisk) -> dict[str, bytes]:
    """Of all files that hold something, but for the lock."""
    found = {path: disk.read(PurePath(path)) for path in disk.paths("store/*") if not path.endswith("/lock")}
    return {path: data for path, data in found.items() if any(data)}
