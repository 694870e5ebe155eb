"""A master and two slaves on one simulated network, the senders on the master, and the rules that always hold.

* A message is acknowledged only when as many nodes have its bytes as the rule in force asks for (a node that has lost
  its power or disk since the message was sent may have lost it again).
* What a node has it keeps: all of it when its process is killed, what was flushed when its power goes. A sync that
  fails flushes nothing; the next process on the machine still sees what it has dropped, and may not call it flushed
  before it has written it again. A start that the disk refuses changes nothing of that.
* A slave has nothing behind its log's end, but for the part of a record that is under way.
* A slave's log is, from its first byte on, the beginning of the master's; but for fillers that it has itself, which it
  fetches again: at rest there are none that the master has not got, too. A filler of the master's excuses nothing: a
  slave with other bytes there is apart. If the master lost its end, or such a range, the log of a slave that has more
  does not grow until somebody decides, or the master has taken it back.
* A bit that changed in a slave's memory is fetched again from the master; that this fails changes nothing of the above.
* A start fills nothing that was sure, and changes nothing that it keeps. One thing is left open: a record of which a
  part of the properties is missing within one sector. No check sum covers properties (except with forceVerifyPropCRC),
  and Java keeps such a record as well; disks write whole sectors, and a missing whole one is found (log_scanner.py).
  Such a story ends there.
* Who makes a slave the master, or empties one, chooses between logs: what is left behind then was on as many nodes as
  promised until that moment. What a master's clean-up has deleted is nobody's loss.
* The offsets of a queue never go back; what is read at one is what was stored there; no acknowledged message has the
  place of another.
* A topic that was deleted shows nothing that was sent before, on no node, and its queue offsets begin at 0. Who has the
  record that deletes it has deleted it.
* Every send is answered.
"""

import asyncio
import hashlib
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

from maxq.codes import ResponseCode
from maxq.config.message_store_config import MessageStoreConfig
from maxq.errors import MaxQError, StoreFailedError, StoreRefusedError
from maxq.protocol.message.message_sys_flag import MessageSysFlag
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.testing.sim_file import SECTOR
from maxq.testing.sim_machine import MachineDiedError
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld
from tests.simulation.ha.ha_ledger import HaLedger, HaSent
from tests.simulation.ha.ha_node import HaNode, Image, read_queue

ADDRESSES: Final = ("10.0.0.1", "10.0.0.2", "10.0.0.3")
TOPICS: Final = ("Orders", "Payments")
QUEUES: Final = 2
#: Longer than slaveTimeout, syncFlushTimeout and every pause together.
ANSWER_LIMIT_S: Final = 100.0


@dataclass(frozen=True, slots=True)
class Rule:
    """What a story's master waits for, and with what."""

    role: str
    needed: int  # copies, the master's own included; 1: nobody is waited for
    config: MessageStoreConfig


class StoryOverError(Exception):
    """Something happened after which the rules say nothing."""


class HaGroup:
    """Attributes:
    master: the node that is it now.
    marks: how often each kind of thing happened.
    history: what happened, for whoever reads a failure.
    """

    def __init__(
        self, world: SimWorld, rng: SimRng, rule: Rule, marks: Counter[str], history: list[str], *,
        fails: bool = False, other_settings: bool = False, has_batches: bool = False,
    ) -> None:  # fmt: skip
        """`fails`: disks fail, too. `other_settings`: nodes come back with other settings at times."""
        self.world = world
        self.rng = rng
        self.rule = rule
        self.marks = marks
        self.history = history
        self.ledger = HaLedger()
        self.nodes = [
            HaNode(
                world.loop,
                f"node-{number}",
                address,
                rng.fork(address),
                self._config(number == 1),
                self._master_min_offset,
                fails=fails,
            )
            for number, address in enumerate(ADDRESSES, start=1)
        ]
        self.master = self.nodes[0]
        self.sending = True
        self._deletions = rng.fork("deletions")
        self._delete_chance = self._deletions.choice((0.0, 0.02, 0.1))
        self._number = 0
        self._bodies: dict[str, tuple[str, int, int] | None] = {}  # all that were ever sent: where they were seen
        self._queue_ends: dict[tuple[str, int, str, int], int] = {}
        self._senders: list[asyncio.Task[None]] = []
        self._lives: Counter[str] = Counter()
        self._lost_logs: list[Image] = []  # of masters, as they were when the power went
        self._expired_end = 0  # below, masters have deleted their files
        self._other_settings = rng.fork("other settings") if other_settings else None
        self._kinds = rng.fork("kinds of queues") if has_batches else None
        if self._kinds is not None:
            self.master.heard = {topic: self._kinds.chance(0.6) for topic in TOPICS}

    def _config(self, is_master: bool) -> MessageStoreConfig:
        return replace(self.rule.config, broker_role=self.rule.role if is_master else "SLAVE")

    async def _master_min_offset(self) -> int | None:
        """What a slave asks its master's remoting port for (haFullCopy); nobody knows while the master is down."""
        await asyncio.sleep(0.01)
        store = self.master.store
        return store.min_physical_offset if self.master.is_up and store is not None else None

    @property
    def slaves(self) -> list[HaNode]:
        return [node for node in self.nodes if node is not self.master]

    @property
    def now_ms(self) -> int:
        return self.world.clock.monotonic_ms()

    def note(self, text: str) -> None:
        """One line of the history."""
        self.history.append(f"{(self.now_ms - 1_000_000) / 1000:9.3f} {text}")

    # -- life --

    async def start(self, node: HaNode) -> None:
        """The node comes (back), unless it dies while it starts; then it is checked."""
        before = Image() if self._lives[node.name] == 0 else node.live_image()
        died_with_power = node.machine.disk.is_dead and not node.machine.disk.lost_process_only
        durable_end = node.durable_end if node.store is None else node.store.flushed_offset
        self._lives[node.name] += 1
        if self._other_settings is not None and self._other_settings.chance(0.7):
            self._give_other_settings(node, self._other_settings)
        node.note_end()
        filled_before = set(node.filled)
        if node is self.master and died_with_power:
            self._lost_logs.append(before)
        try:
            report = await node.start(self.master.ha_address)
        except MachineDiedError:
            self.marks["died while starting"] += 1
            self.note(f"{node} died while starting")
            self._keep_durable(node, before, durable_end)
            return
        except (OSError, MaxQError) as error:
            assert node.disk_faults is not None, f"{node} does not start on a disk that works: {error!r}"
            self.marks["start refused by a failing disk"] += 1
            self.note(f"{node} does not start: {error!r}")
            if died_with_power:
                self._keep_durable(node, before, durable_end)
            return
        self.note(f"{node} starts, {node.live_image().end} bytes: " + "; ".join(report))
        kept_end = durable_end if died_with_power else before.end
        for start, end in set(node.filled) - filled_before:
            self.note(f"  filled {start} … {end}")
            self.marks[f"damage filled by a {'slave' if node.is_slave else 'master'}'s start"] += 1
            known = (*filled_before, *node.changed)
            again = any(low <= start and end <= high for low, high in known)  # its repair was cut short, or failed
            assert start >= kept_end or again, f"{node} filled {start} … {end}; it was sure up to {kept_end}"
        self._check_kept(node, before, kept_end)
        if self._kinds is not None and node is self.master:
            self._make_found_topics(node)
        self._see_who_joins(node)
        self._queue_ends = {key: end for key, end in self._queue_ends.items() if key[2] != node.name}
        if node is self.master and self.sending:
            self.start_senders()

    def _make_found_topics(self, node: HaNode) -> None:
        """A slave that became the master makes topics of which it has messages and has not heard, and a client makes
        the others."""
        assert node.store is not None and self._kinds is not None, "it is up"
        for topic in TOPICS:
            if topic not in node.heard:
                is_found = any(node.store.max_offset(topic, queue_id) > 0 for queue_id in range(QUEUES))
                has_batches = node.store.queues.topic_write_state(topic).has_batch_queues
                self.marks["topic of which the new master had not heard"] += 1
                node.hear(node.heard | {topic: has_batches if is_found else self._kinds.chance(0.6)})

    async def spread_tables(self) -> None:
        """Slaves hear of the master's topics, each in its own time."""
        while self._kinds is not None:
            await asyncio.sleep(self._kinds.choice((0.05, 0.5, 3.0, 10.0)) * self._kinds.uniform(0.5, 1.5))
            node = self._kinds.choice(self.slaves)
            if node.is_up and self.master.is_up and node.heard != self.master.heard:
                self.marks["slave heard of another type of queues"] += 1
                self.note(f"{node} hears of {self.master.heard}")
                with node.watched():
                    node.hear(self.master.heard)

    @staticmethod
    def _keep_durable(node: HaNode, before: Image, durable_end: int) -> None:
        """The node is down again since its power went: only what was durable is sure."""
        node.image = Image(before.start, before.data[: max(0, durable_end - before.start)])
        node.durable_end = min(durable_end, node.image.end)

    def _give_other_settings(self, node: HaNode, rng: SimRng) -> None:
        drawn: dict[str, Any] = {
            "message_index_enable": rng.chance(0.6),
            "index_tag_enable": rng.chance(0.3),
            "enabled_append_prop_crc": rng.chance(0.4),
            "force_verify_prop_crc": rng.chance(0.4),
            "enable_consume_queue_ext": rng.chance(0.4),
            "mapped_file_size_consume_queue_ext": rng.choice((1024, 2048)),
            "flush_interval_commit_log": rng.choice((20, 500)),
            "flush_consume_queue_thorough_interval": rng.choice((50, 60_000)),
        }
        changed = {name: value for name, value in drawn.items() if getattr(node.config, name) != value}
        node.config = replace(node.config, **drawn)
        self.marks.update(f"other: {name}" for name in changed)
        self.note(f"{node} gets other settings: {changed}")

    def start_senders(self) -> None:
        """Producers, in the master's process."""
        for n in range(self.rng.between(1, 3)):
            rng = self.rng.fork(f"sender {n} {self.now_ms}")
            self._senders.append(self.master.machine.spawn(self._send(self.master, rng)))

    async def stop_sending(self) -> None:
        """No more messages; those under way are answered."""
        self.sending = False
        await asyncio.sleep(ANSWER_LIMIT_S if self.rng.chance(0.05) else 8)
        self.check_senders()

    def check_senders(self) -> None:
        """A sender that failed speaks."""
        for task in self._senders:
            if task.done() and not task.cancelled() and task.exception() is not None:
                error = task.exception()
                if isinstance(error, Exception):
                    raise error
        self._senders = [task for task in self._senders if not task.done()]

    async def start_losing_power(self, node: HaNode, operations: int) -> None:
        """The node comes back, and loses its power again `operations` disk operations later."""
        node.power_lost_at_start = operations
        await self.start(node)

    async def promote_the_longest(self, *, keep_old: bool) -> None:
        """The operator makes the slave with most of the log the master. `keep_old`: the old master's disk stays, it
        may join or not."""
        for node in self.nodes:
            if node.is_up:
                await node.stop()
            node.machine.disk.cut_power_after(-1)
        self.check_union()
        chosen = max(self.slaves, key=lambda node: node.live_image().end)
        if not keep_old:
            self.master.lose_disk()
        self.marks["slave made the master"] += 1
        self.note(f"{chosen} is made the master")
        self.master = chosen
        for node in self.nodes:
            node.config = self._config(node is chosen)
            node.frozen_end = None
        await self.start(chosen)
        self.forget_what_the_master_lacks(f"{chosen} was made the master")
        for node in self.slaves:
            if self._has_what_was_never_on(chosen, node):
                self.marks["slave emptied: the new master never had its first files"] += 1
                node.lose_disk()
            await self.start(node)

    def _has_what_was_never_on(self, chosen: HaNode, node: HaNode) -> bool:
        """Without haFullCopy a slave begins with its master's last file, and knows nothing of queues that have no
        message there. As master it numbers them from 0 again: who has the older messages has to be emptied."""
        begins, others = chosen.live_image().start, node.live_image()
        return not self.rule.config.ha_full_copy and others.data != b"" and others.start < begins

    async def let_operator_decide(self) -> None:
        """Slaves that do not join: the longest becomes the master, or they are emptied."""
        if not self._apart():
            self.forget_what_the_master_lacks("nobody has it any more")
            return
        if self.who_has_lost() or self.rng.chance(0.3):
            await self.promote_the_longest(keep_old=self.rng.chance(0.5))
        for node in self._apart():
            self.marks["slave emptied by the operator"] += 1
            self.note(f"{node} is emptied")
            await node.stop()
            node.lose_disk()
            await self.start(node)
        self.forget_what_the_master_lacks("the operator has decided")

    def _apart(self) -> list[HaNode]:
        """Slaves whose log is not the beginning of the master's, and will not be."""
        master = self.master.live_image()
        return [
            node
            for node in self.slaves
            if node.frozen_end is not None
            or self._why_not_joined(node, node.live_image(), master)
            or 0 < node.live_image().end < master.start  # what it needs next is not there
        ]

    async def converge(self, limit_s: float) -> None:
        """The slaves reach the master's end in time."""
        began = self.world.loop.time()
        while not self._are_equal():
            ends = {str(node): node.live_image().end for node in self.nodes}
            assert self.world.loop.time() < began + limit_s, f"after {limit_s} s without faults the logs end at {ends}"
            self.check()
            await asyncio.sleep(0.1)

    def _are_equal(self) -> bool:
        master = self.master.live_image()
        images = [node.live_image() for node in self.slaves]
        return all(image.end == master.end and image.difference(master) is None for image in images)

    # -- sending --

    async def _send(self, node: HaNode, rng: SimRng) -> None:
        pace = rng.choice((0.4, 1.0, 3.0))
        while self.sending and node.store is not None and self.master is node:
            if rng.chance(0.8):
                await asyncio.sleep(rng.uniform(0, pace))
            acknowledgement, store = node.acknowledgement, node.store
            if acknowledgement is None or store is None:
                return
            refusal = acknowledgement.refusal()
            if refusal is not None:
                self.marks["refused: too few replicas"] += 1
                await asyncio.sleep(0.2)
                continue
            try:
                if self._deletions.chance(self._delete_chance):
                    await self._delete_one(node)
                else:
                    await self._send_one(node, rng)
            except (OSError, StoreFailedError, StoreRefusedError) as error:
                told = node.disk_faults is not None or node.has_failed
                assert told, f"a disk that works is refused: {error!r}"
                self.marks["a request was answered with an error"] += 1
                await asyncio.sleep(0.01)

    async def _delete_one(self, node: HaNode) -> None:
        assert node.store is not None, "it runs"
        self._number += 1
        topic, sent_ms = self._deletions.choice(TOPICS), self.now_ms
        result = node.store.put_deletion([topic])
        if not result.ok:
            assert result.remark, f"a refusal without a word why: {result}"
            await asyncio.sleep(0.1)
            return
        record = node.bytes_at(result.physical_offset, result.size)
        sent = HaSent(
            self._number, "", 0, -1, result.physical_offset, record, "", sent_ms, deletes=topic
        )  # fmt: skip
        self.ledger.messages.append(sent)
        self.note(f"{topic} is deleted at {result.physical_offset}")
        self.marks["topic deleted"] += 1
        if self._kinds is not None:
            node.hear(node.heard | {topic: self._kinds.chance(0.5)})
            self.note(f"{topic} is made again: {node.heard}")
        await self._until_answered(node, sent, result.end_offset)

    async def _send_one(self, node: HaNode, rng: SimRng) -> None:
        assert node.store is not None and node.acknowledgement is not None, "it runs"
        self._number += 1
        topic, queue_id = rng.choice(TOPICS), rng.below(QUEUES)
        body = rng.bytes(rng.choice((10, 10, 100, 400, 2500)))
        sent_ms = self.now_ms
        self._bodies.setdefault(_md5(body), None)
        message = MessageExtBrokerInner(
            topic, queue_id, body, {"KEYS": f"k{self._number:06}"}, born_timestamp=node.machine.clock.wall_ms()
        )
        if self._kinds is not None and node.heard[topic] and self._kinds.chance(0.4):
            message.sys_flag = MessageSysFlag.INNER_BATCH
            message.properties["INNER_NUM"] = str(self._kinds.between(1, 4))
            self.marks["inner batch sent"] += 1
        result = node.store.put_message(message)
        if not result.ok:
            self.marks[f"refused: {result.status.name}"] += 1
            assert result.remark, f"a refusal without a word why: {result}"
            await asyncio.sleep(0.1)
            return
        at = result.physical_offset
        record = node.bytes_at(at, result.size)
        sent = HaSent(self._number, topic, queue_id, result.queue_offset, at, record, _md5(body), sent_ms)
        self.ledger.messages.append(sent)
        await self._until_answered(node, sent, result.end_offset)

    async def _until_answered(self, node: HaNode, sent: HaSent, end_offset: int) -> None:
        assert node.acknowledgement is not None, "it runs"
        future = node.acknowledgement.outcome(end_offset)
        status = ResponseCode.SUCCESS
        if future is not None:
            try:
                status = await asyncio.wait_for(future, ANSWER_LIMIT_S)
            except TimeoutError as error:
                raise AssertionError(f"{sent} was not answered within {ANSWER_LIMIT_S} s") from error
        self.marks[f"answer: {ResponseCode(status).name}"] += 1
        if status == ResponseCode.SUCCESS:
            self._acknowledge(node, sent)

    def _acknowledge(self, node: HaNode, sent: HaSent) -> None:
        holders = [other.name for other in self.nodes if other.has(sent)]
        excused = [other.name for other in self.nodes if other.name not in holders and other.lost_since(sent.sent_ms)]
        assert node.name in holders, f"{sent} was acknowledged and is not on the master"
        assert len(holders) + len(excused) >= self.rule.needed, (
            f"{sent} was acknowledged, {self.rule.needed} copies are promised, only {holders} have it"
        )
        sent.acknowledged = True
        sent.by_disk = node.store is not None and node.store.flusher.is_sync

    # -- rules --

    def check(self, *, whole: bool = True) -> None:
        """What holds at any moment. `whole`: compare logs from their first byte, not only what is new."""
        with ExitStack() as stack:
            for node in self.nodes:
                stack.enter_context(node.watched())
            self._check(whole=whole)

    def _check(self, *, whole: bool) -> None:
        self.check_senders()
        for failure in self.world.loop.failures:
            raise failure
        for node in self.nodes:
            node.note_beginning()
        if self.master.is_up:
            self._retire_expired()
        compared = 0 if whole else min(node.compared_end for node in self.slaves)
        master = self.master.live_image(compared)
        for node in self.slaves:
            if node.is_up and self.master.is_up:  # without a master no slave grows
                self._check_slave(node, master)
        for node in self.nodes:
            if node.is_up:
                self._check_queue_ends(node)

    def _check_slave(self, node: HaNode, master: Image) -> None:
        assert not node.has_left_behind_end(), f"{node} has parts of what its master sent behind its log's end"
        image = node.live_image(master.start)
        if self._is_of_lost_log(node, image, master):
            return
        if node.frozen_end is not None:
            if not self._why_not_joined(node, image, master):
                node.frozen_end = None  # the master has fetched from it what it had lost
                self.marks["the master took back what its start had filled"] += 1
                return
            assert image.end == node.frozen_end, (
                f"{node}'s log is not a beginning of the master's any more, and still grew from {node.frozen_end} to "
                f"{image.end}"
            )
            return
        reason = self._why_not_joined(node, image, master)
        assert not reason, f"{node}: {reason}"
        node.compared_end = image.end

    def _why_not_joined(self, node: HaNode, image: Image, master: Image) -> str:
        """Why the log is not the beginning of the master's; empty if it is."""
        if image.end > master.end and image.data:
            return f"its log ends at {image.end}, the master's at {master.end}"
        fillers = node.fillers()
        at = _masked(image, fillers).difference(_masked(master, fillers))
        return "" if at is None else f"its log differs from the master's at {at}"

    def _is_of_lost_log(self, node: HaNode, image: Image, master: Image) -> bool:
        """Did what the master's machine had sent before it lost its power arrive only now, on the old connection? Then
        the slave has more than its master, or other bytes, and does not join it any more."""
        if image.end == node.frozen_end or not self._why_not_joined(node, image, master):
            return False
        whole = node.live_image()
        if not any(whole.end <= lost.end and whole.difference(lost) is None for lost in self._lost_logs):
            return False
        node.frozen_end = image.end
        self.marks["the master's lost end arrived after its start"] += 1
        return True

    def _retire_expired(self) -> None:
        """Files that the master has deleted because they are old or its disk is full are nobody's loss."""
        master = self.master
        assert master.store is not None, "it is up"
        start = master.store.min_physical_offset
        if master.began_at is not None and master.began_at < start and start > self._expired_end:
            self._expired_end = start
            self.marks["the master's clean-up deleted files"] += 1
            self.ledger.forget([sent for sent in self.ledger.messages if sent.physical_offset < start])

    def _see_who_joins(self, started: HaNode) -> None:
        """After a start: whose log is not a beginning of the master's? Only a master that lost its end excuses that."""
        master = self.master.live_image()
        for node in self.nodes:
            node.compared_end = 0
        for node in self.slaves if started is self.master else [started] if started is not self.master else []:
            if not node.is_up:
                continue
            image = node.live_image()
            reason = self._why_not_joined(node, image, master)
            was = node.frozen_end
            node.frozen_end = image.end if reason else None
            if reason and was is None:
                self.marks["slave ahead of a master that lost its end"] += 1
                self.note(f"  {node} does not join: {reason}")
                excused = self.master.machine.data_lost_ms or self.marks["slave made the master"]
                assert excused, f"{node}: {reason}, and the master has lost nothing"

    def _check_kept(self, node: HaNode, before: Image, kept_end: int) -> None:
        """Check that everything that must survive did, and that nothing else has taken its place."""
        after = node.live_image()
        if kept_end <= before.start:
            return  # not one byte was sure
        assert after.end >= min(kept_end, before.end), (
            f"{node} had {before.end} bytes of log, {kept_end} for sure; after its start {after.end}"
        )
        unsure = [*node.filled, *node.changed]
        at = _masked(before, unsure).difference(_masked(after, unsure))
        if at is not None and at >= kept_end and any(after.range(at - at % SECTOR, at - at % SECTOR + SECTOR)):
            # never flushed, and torn within a sector (no disk does that), in properties, which have no check sum
            self.marks["survivor with properties torn within a sector"] += 1
            raise StoryOverError
        assert at is None, f"{node}'s log changed at {at} with its start; it was sure up to {kept_end}"

    def _check_queue_ends(self, node: HaNode) -> None:
        assert node.store is not None, "it is up"
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                incarnation = node.store.incarnation(topic)
                key = (f"{topic} {incarnation}", queue_id, node.name, self._lives[node.name])
                end = node.store.max_offset(topic, queue_id)
                before = self._queue_ends.get(key, 0)
                assert end >= before, f"{node}: {topic}/{queue_id} went back from {before} to {end}"
                self._queue_ends[key] = end
                if end > before and not node.changed and self.rng.chance(0.3):
                    self._check_read(node, topic, queue_id, max(before, node.store.min_offset(topic, queue_id)), end)

    def _check_read(self, node: HaNode, topic: str, queue_id: int, start: int, end: int) -> None:
        assert node.store is not None, "it is up"
        for offset, body in read_queue(node.store, topic, queue_id, start, end).items():
            assert body in self._bodies, f"{node} shows at {topic}/{queue_id}@{offset} what was never sent"
            shown = next((sent for sent in self.ledger.messages if sent.body_md5 == body), None)
            assert shown is None or not node.store.is_gone(topic, shown.physical_offset), (
                f"{node} shows {shown}, and deleted {topic} at {node.store.incarnation(topic)}"
            )
            place = self._bodies[body]
            assert place in (None, (topic, queue_id, offset)), (
                f"{node} shows at {topic}/{queue_id}@{offset} what was seen at {place} before"
            )
            self._bodies[body] = (topic, queue_id, offset)
            self.marks["read on a slave" if node.is_slave else "read on the master"] += 1

    def forget_what_the_master_lacks(self, why: str) -> None:
        """Another log is the truth now. Of what was acknowledged and is not in it as many copies as were promised must
        be accounted for: on nodes that have lost something since, or in logs that hold it still and do not join the
        new truth (or began later): who chose between them left it behind."""
        image = self.master.live_image()
        gone = [sent for sent in self.ledger.messages if not image.has(sent.physical_offset, sent.record)]
        lost = [sent for sent in gone if sent.acknowledged]
        images = {node.name: node.live_image() for node in self.nodes}
        for sent in lost:
            holders = {name for name, image in images.items() if image.has(sent.physical_offset, sent.record)}
            losers = {node.name for node in self.nodes if node.lost_since(sent.sent_ms)}
            copies = len(holders | losers) + (self.rule.needed == 1)  # then only the old master promised to keep it
            assert copies >= self.rule.needed, (
                f"lost: {sent}: {why}, only {losers} have lost anything since, {holders} have it, "
                f"{self.rule.needed} copies were promised"
            )
            what = "left behind by who chose the master" if holders else "lost with all its copies"
            self.marks[f"acknowledged message {what}"] += 1
        self.ledger.forget(gone)

    def who_has_lost(self) -> list[HaSent]:
        """Acknowledged messages that the master has not."""
        image = self.master.live_image()
        return [s for s in self.ledger.acknowledged() if not image.has(s.physical_offset, s.record)]

    def check_union(self) -> None:
        """Every acknowledged message is somewhere, unless all the copies that were promised are excused."""
        images = [node.live_image() for node in self.nodes]
        for sent in self.ledger.acknowledged():
            if not any(image.has(sent.physical_offset, sent.record) for image in images):
                lost = sum(node.lost_since(sent.sent_ms) for node in self.nodes)
                assert lost >= self.rule.needed, f"lost everywhere: {sent}"

    def check_equal(self) -> None:
        """At rest: all logs and queues are one."""
        master = self.master
        image = master.live_image()
        queues = {(t, q): master.queue(t, q) for t in TOPICS for q in range(QUEUES)}
        acknowledged = self.ledger.acknowledged()
        for sent in acknowledged:
            assert image.has(sent.physical_offset, sent.record), f"lost: {sent}"
        self._check_incarnations(image)
        acknowledged = [sent for sent in acknowledged if not sent.deletes and not self.ledger.is_gone(sent)]
        for sent in acknowledged:
            shown = queues[sent.topic, sent.queue_id].get(sent.queue_offset)
            assert shown == sent.body_md5, f"{sent} is not what the master shows there"
        places = Counter((s.topic, s.queue_id, s.queue_offset) for s in acknowledged)
        twice = [place for place, count in places.items() if count > 1]
        assert not twice, f"two acknowledged messages have one place: {twice}"
        for node in self.slaves:
            own = node.live_image()
            at = own.difference(image)
            assert at is None and own.end == image.end, (
                f"{node} at rest: {own.end} of {image.end} bytes, first difference: {at}"
            )
            for (topic, queue_id), shown_by_master in queues.items():
                shown_here = node.queue(topic, queue_id)
                first = master.min_offset(topic, queue_id)  # a master that was a slave may begin later
                wrong = {o: b for o, b in shown_here.items() if o >= first and shown_by_master.get(o) != b}
                assert not wrong, f"{node} shows other messages in {topic}/{queue_id} than the master: {sorted(wrong)}"
                missing = [
                    s for s in acknowledged
                    if (s.topic, s.queue_id) == (topic, queue_id) and s.physical_offset >= own.start
                    and s.queue_offset not in shown_here
                ]  # fmt: skip
                assert not missing, f"{node} does not show {missing[0]}"

    def _check_incarnations(self, image: Image) -> None:
        """All deletions that are in the log, acknowledged or not, count on all nodes that have the place."""
        self.ledger.messages = [
            sent for sent in self.ledger.messages
            if not sent.deletes or image.has(sent.physical_offset, sent.record)
        ]  # fmt: skip
        for node in self.nodes:
            assert node.store is not None, "it is up"
            for topic in TOPICS:
                wanted, known = self.ledger.incarnation(topic), node.store.incarnation(topic)
                assert known == wanted or max(known, wanted) < node.live_image().start, (
                    f"{node} says that {topic} was deleted at {known}, it was at {wanted}"
                )


def _masked(image: Image, ranges: list[tuple[int, int]]) -> Image:
    """The image with these ranges zeroed."""
    data = bytearray(image.data)
    for start, end in ranges:
        low, high = max(0, start - image.start), min(len(data), end - image.start)
        if low < high:
            data[low:high] = bytes(high - low)
    return Image(image.start, bytes(data)) if ranges else image


def _md5(body: bytes) -> str:
    return hashlib.md5(body).hexdigest()
