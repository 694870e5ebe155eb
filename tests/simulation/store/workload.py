"""Senders, readers, settings and clean-up against one running store, all drawn from one seed."""

import asyncio
import contextlib
import hashlib

from maxq.protocol.message.message import Message, encode_batch
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner
from maxq.store.message_store import MessageStore
from maxq.store.store_results import GetMessageStatus
from maxq.testing.sim_rng import SimRng
from maxq.testing.simulation import SimWorld
from tests.durability import durable
from tests.simulation.store.ledger import Deleted, Ledger, Sent
from tests.simulation.store.store_world import ROOT

TOPICS = ("Orders", "Payments", "%RETRY%group", "Ümläut-topic")
QUEUES = 3
SETTINGS = ROOT / "config" / "simulated.json"


class Workload:
    """One life's activity."""

    def __init__(self, store: MessageStore, world: SimWorld, rng: SimRng, ledger: Ledger, marks: set[str]) -> None:
        self._store = store
        self._world = world
        self._rng = rng
        self._ledger = ledger
        self._marks = marks
        self._number = len(ledger.messages)

    async def run(self, duration_ms: int) -> None:
        """Everything at once for so long."""
        rng = self._rng
        tasks = [asyncio.ensure_future(self._send(rng.fork(f"sender {n}"))) for n in range(rng.between(1, 4))]
        tasks.append(asyncio.ensure_future(self._read(rng.fork("reader"))))
        tasks.append(asyncio.ensure_future(self._write_settings(rng.fork("settings"))))
        if rng.chance(0.4):
            tasks.append(asyncio.ensure_future(self._clean(rng.fork("clean"))))
        if rng.chance(0.15):
            tasks.append(asyncio.ensure_future(self._break_flushes(rng.fork("flush"))))
        if rng.chance(0.1):
            tasks.append(asyncio.ensure_future(self._fill_disk(rng.fork("full"))))
        if rng.chance(0.4):
            tasks.append(asyncio.ensure_future(self._delete_topics(rng.fork("delete"))))
        try:
            await asyncio.wait(tasks, timeout=duration_ms / 1000, return_when=asyncio.FIRST_EXCEPTION)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- sending --

    async def _send(self, rng: SimRng) -> None:
        while True:
            if rng.chance(0.15):
                await self._send_batch(rng)
            else:
                await self._send_one(rng)
            if rng.chance(0.7):
                await asyncio.sleep(rng.uniform(0, 0.02))

    async def _send_one(self, rng: SimRng) -> None:
        self._number += 1
        topic, queue_id = rng.choice(TOPICS), rng.below(QUEUES)
        body = self._body(rng)
        key = f"key{self._number}"
        properties = {
            "KEYS": f"{key} shared{rng.below(3)}",
            "TAGS": rng.choice(("TagA", "TagB")),
            "UNIQ_KEY": f"U{key}",
            **self._more_properties(),
        }
        result = self._store.put_message(
            MessageExtBrokerInner(topic, queue_id, body, properties, born_timestamp=self._world.clock.wall_ms())
        )
        if not result.ok:
            self._marks.add(f"refused: {result.status.name}")
            assert result.remark, f"a refusal without a word why: {result}"
            await asyncio.sleep(0.005)
            return
        sent = Sent(
            topic, queue_id, result.queue_offset, result.physical_offset, result.size, result.store_timestamp,
            _md5(body), key, properties,
        )  # fmt: skip
        self._ledger.add(sent)
        await self._wait_durable(result.end_offset, [sent])

    def _more_properties(self) -> dict[str, str]:
        """Of a message that is sent by itself."""
        return {}

    async def _send_batch(self, rng: SimRng) -> None:
        topic, queue_id = rng.choice(TOPICS[:2]), rng.below(QUEUES)
        count = rng.between(2, 5)
        bodies = [self._body(rng)[:300] for _ in range(count)]
        keys = []
        for _ in bodies:
            self._number += 1
            keys.append(f"key{self._number}")
        batch = encode_batch(
            [Message(topic, body, {"KEYS": key, "UNIQ_KEY": f"U{key}"}) for body, key in zip(bodies, keys, strict=True)]
        )
        result = self._store.put_batch(
            MessageExtBrokerInner(topic, queue_id, batch, born_timestamp=self._world.clock.wall_ms())
        )
        if not result.ok:
            assert result.remark, f"a refusal without a word why: {result}"
            await asyncio.sleep(0.005)
            return
        assert result.message_count == count
        sents = []
        places = [int(msg_id[16:], 16) for msg_id in result.msg_id.split(",")]
        ends = [*places[1:], result.end_offset]
        for n in range(count):
            size = ends[n] - places[n]
            sent = Sent(
                topic, queue_id, result.queue_offset + n, places[n], size, result.store_timestamp, _md5(bodies[n]),
                keys[n], {"KEYS": keys[n], "UNIQ_KEY": f"U{keys[n]}"},
            )  # fmt: skip
            self._ledger.add(sent)
            sents.append(sent)
        self._marks.add("batch")
        await self._wait_durable(result.end_offset, sents)

    async def _wait_durable(self, end_offset: int, sents: list[Sent]) -> None:
        future = durable(self._store, end_offset)
        if future is None:
            return
        if await future:
            for sent in sents:
                sent.durable = True
        else:
            self._marks.add("flush timeout")

    def _body(self, rng: SimRng) -> bytes:
        size = rng.choice((0, 10, 100, 700, 2500))
        return rng.bytes(rng.below(size) + 1) if size else b""

    # -- the rest --

    async def _read(self, rng: SimRng) -> None:
        """What is visible is right, and with SYNC_FLUSH it is durable."""
        while True:
            topic, queue_id = rng.choice(TOPICS), rng.below(QUEUES)
            low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
            if 0 <= low < high:
                offset = rng.between(low, high - 1)
                result = self._store.get_message("group", topic, queue_id, offset, 8, None)
                if result.status is GetMessageStatus.FOUND:
                    assert result.next_begin_offset > offset
                    if self._store.config.flush_disk_type == "SYNC_FLUSH":
                        last = result.last_physical_offset
                        assert last < self._store.flushed_offset, f"{last} is visible and not durable"
            await asyncio.sleep(rng.uniform(0, 0.05))

    async def _write_settings(self, rng: SimRng) -> None:
        ledger = self._ledger
        while True:
            content = b'{"version":%d,"x":"%s"}' % (len(ledger.settings), b"y" * rng.below(600))
            ledger.settings.append(content)
            number = len(ledger.settings) - 1
            try:
                await self._world.loop.run_in_executor(None, self._world.disk.replace, SETTINGS, content)
                ledger.settings_durable = max(ledger.settings_durable, number)
            except OSError:  # the disk is full: the old content stays
                self._marks.add("settings refused")
            await asyncio.sleep(rng.uniform(0, 0.2))

    async def _delete_topics(self, rng: SimRng) -> None:
        """A topic is deleted; those who send make it again. What is shown later was sent later."""
        while True:
            await asyncio.sleep(rng.uniform(0, 0.8))
            doomed = {rng.choice(TOPICS), rng.choice(TOPICS)}
            result = self._store.put_deletion(doomed)
            if not result.ok:
                assert result.remark, f"a refusal without a word why: {result}"
                continue
            self._marks.add("deleted a topic")
            rows = [Deleted(topic, result.physical_offset, result.end_offset) for topic in sorted(doomed)]
            self._ledger.deletions += rows
            future = durable(self._store, result.end_offset)
            if rng.chance(0.7):
                try:
                    await self._store.finish_deletion(doomed)
                except OSError:  # a broken flush, or no room: the record stands in the log all the same
                    self._marks.add("deletion not finished")
            if self._store.flusher.failure is None and (future is None or await future):
                for row in rows:
                    row.durable = row.durable or future is not None or self._store.flushed_offset >= row.end_offset

    async def _clean(self, rng: SimRng) -> None:
        """Time passes, files expire."""
        while True:
            await asyncio.sleep(rng.uniform(0.05, 0.6))
            if rng.chance(0.3):
                self._world.clock.jump_wall_ms(rng.between(-2000, 5000))
            else:
                self._world.clock.jump_wall_ms(2 * 3_600_000)
            self._store.cleaner.request()
            with contextlib.suppress(OSError):  # the next run goes on with it
                await self._store.cleaner.clean()
            await asyncio.sleep(rng.uniform(1, 2))

    async def _break_flushes(self, rng: SimRng) -> None:
        await asyncio.sleep(rng.uniform(0, 0.5))
        self._world.disk.fail_flush(f"store/{rng.choice(('commitlog', 'consumequeue', 'index', 'checkpoint'))}*")

    async def _fill_disk(self, rng: SimRng) -> None:
        await asyncio.sleep(rng.uniform(0, 0.5))
        usage = self._world.disk.usage(ROOT)
        self._world.disk.other_bytes = usage.free - rng.below(60_000)
        await asyncio.sleep(rng.uniform(0, 3))
        self._world.disk.other_bytes = 0


def _md5(body: bytes) -> str:
    return hashlib.md5(body).hexdigest()
