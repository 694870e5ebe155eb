"""kill -9 under load, real processes: `python -m tests.integration.torture.broker_torture --rounds N [--seed S]`.

Each round starts `maxq standalone` with SYNC_FLUSH on one store, sends from several connections, and kills the process
at a random moment: while it starts, or while it is loaded. Then, from outside:

* the offline check, run beside the writing broker, finds nothing wrong;
* every acknowledged message is in the log, byte for byte, where the answer said;
* after the next start the offline check finds nothing wrong, and nothing is left to dispatch;
* ConsumeQueues and index equal those that a copy of the store gets when all of them are built anew from the log.

What fails tells what is wrong, and where a copy of the store as it was then is kept.
"""

import argparse
import asyncio
import hashlib
import os
import random
import shutil
import signal
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import IO

from maxq.client.client_config import ProducerConfig
from maxq.client.producer.producer import Producer
from maxq.client.results.send_result import SendStatus
from maxq.errors import MaxQError
from maxq.machine import system_environment
from maxq.protocol.message.message import Message
from maxq.runtime.files.system import SystemClock, SystemDisk
from maxq.store.tools.check import CheckReport, StoreCheck
from maxq.store.tools.index_files import IndexReader, infer_geometry
from maxq.store.tools.log_walk import LogWalk
from maxq.store.tools.message_lines import messages_of
from maxq.store.tools.queue_files import QueueEntry, QueueFiles
from maxq.store.tools.recover import recover
from maxq.store.tools.store_files import StoreFiles
from maxq.testing.server_process import facts_of

TOPICS = ("Torture_A", "Torture_B")
SETTINGS = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
}
START_TIMEOUT_S = 60.0
LEAST = 20  # messages that are acknowledged before a kill under load


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """What an answer promised."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    body_md5: str
    uniq_key: str


@dataclass(slots=True)
class Torture:
    """One store and everything that was acknowledged on it."""

    store: Path
    rng: random.Random
    acknowledged: dict[int, Acknowledged] = field(default_factory=dict)  # by physical offset
    kills_while_starting: int = 0
    _log: IO[bytes] = field(default_factory=tempfile.TemporaryFile)

    async def round(self) -> None:
        """Start, load, kill, look."""
        process = await self._spawn()
        try:
            if self.rng.random() < 0.2:
                await asyncio.sleep(self.rng.uniform(0.0, 0.5))
                self.kills_while_starting += 1
            else:
                name_server = await self._ready(process)
                self._check_alive()
                await self._load(process, name_server, self.rng.uniform(0.2, 1.5))
        finally:
            await self._kill(process)
        self._look_for_acknowledged()

    async def finish(self) -> None:
        """The last start ends cleanly; everything is compared."""
        process = await self._spawn()
        try:
            await self._ready(process)
            self._check_alive()
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), START_TIMEOUT_S) == 0, "SIGTERM did not end it cleanly"
        finally:
            await self._kill(process)
        self._claim(not (self.store / "abort").exists(), "a clean shutdown left the abort file")
        self._look_for_acknowledged()
        self._check("after the clean end")
        self._compare_with_rebuild()

    # -- the process --

    async def _spawn(self) -> asyncio.subprocess.Process:
        self._log.truncate(0)
        options = [part for item in SETTINGS.items() for part in ("--set", "=".join(item))]
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "maxq", "standalone", "--store", str(self.store), "--namesrv-port", "0",
            "--broker-port", "0", *options,
            stdout=asyncio.subprocess.PIPE, stderr=self._log, start_new_session=True,
        )  # fmt: skip

    async def _ready(self, process: asyncio.subprocess.Process) -> str:
        """The name server's address, once the process says that it is ready."""
        assert process.stdout is not None
        while True:
            line = await asyncio.wait_for(process.stdout.readline(), START_TIMEOUT_S)
            assert line, f"it ended instead of getting ready: {self._said()}"
            if facts := facts_of(line.decode()):
                return str(facts["nameServer"])

    def _said(self) -> str:
        """What the process wrote to its standard error."""
        self._log.seek(0)
        return self._log.read().decode("utf-8", "replace")[-3000:]

    async def _kill(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is None:
            process.kill()
        await process.wait()

    # -- load --

    async def _load(self, process: asyncio.subprocess.Process, name_server: str, seconds: float) -> None:
        """Send from several producers; the process is killed in the middle of it."""
        enough = len(self.acknowledged) + LEAST
        senders = [asyncio.ensure_future(self._send(name_server, number)) for number in range(3)]
        for pause in (0.0, seconds / 2):  # as the first messages come, and in the middle
            await asyncio.sleep(pause)
            await asyncio.to_thread(self._check, "while the broker was writing")
        async with asyncio.timeout(START_TIMEOUT_S):
            while len(self.acknowledged) < enough and not all(sender.done() for sender in senders):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await asyncio.sleep(seconds / 2)
        process.kill()
        await process.wait()
        for sender in senders:
            sender.cancel()
        for outcome in await asyncio.gather(*senders, return_exceptions=True):
            if isinstance(outcome, Exception) and not isinstance(outcome, (MaxQError, OSError)):
                raise outcome

    async def _send(self, name_server: str, number: int) -> None:
        config = ProducerConfig(
            namesrv_addr=name_server,
            producer_group=f"torture_{number}",
            instance_name=f"torture-{number}-{self.rng.random()}",
            retry_times_when_send_failed=0,
            send_msg_timeout=10_000,
        )
        async with Producer(config, system_environment()) as producer:
            await asyncio.gather(*(self._send_on(producer) for _ in range(16)))

    async def _send_on(self, producer: Producer) -> None:
        while True:
            body = self.rng.randbytes(self.rng.choice((10, 300, 1000, 3000)))
            message = Message(self.rng.choice(TOPICS), body, {"TAGS": "T", "KEYS": f"k{self.rng.randrange(1000)}"})
            result = await producer.send(message)
            if result.send_status is SendStatus.SEND_OK:
                place = int(result.offset_msg_id[16:], 16)
                queue = result.message_queue
                md5 = hashlib.md5(body).hexdigest()
                self.acknowledged[place] = Acknowledged(
                    queue.topic, queue.queue_id, result.queue_offset, place, md5, result.msg_id
                )

    # -- looking --

    def _files(self, store: Path | None = None) -> StoreFiles:
        return StoreFiles(
            SystemDisk(), PurePath(store or self.store),
            hash_slots=int(SETTINGS["maxHashSlotNum"]), index_entries=int(SETTINGS["maxIndexNum"]),
        )  # fmt: skip

    def _claim(self, holds: bool, otherwise: str) -> None:
        """If it does not hold: keep a copy of the store, and say what is wrong and where the copy is."""
        if holds:
            return
        folder = tempfile.mkdtemp(prefix="maxq-torture-failed-")
        shutil.copytree(self.store, folder, dirs_exist_ok=True)
        raise AssertionError(f"{otherwise}\na copy of the store: {folder}")

    def _check(self, when: str) -> CheckReport:
        report = StoreCheck(self._files()).run()
        self._claim(not report.faults, "\n".join([f"{when}:", *report.lines()]))
        return report

    def _check_alive(self) -> None:
        """Right after a start, before anything is sent: nothing is wrong, nothing is left to do."""
        report = self._check("after a start")
        self._claim(not [note for note in report.notes if "yet" in note], "\n".join(["after a start:", *report.notes]))

    def _look_for_acknowledged(self) -> None:
        walk = LogWalk(self._files())
        found = {message["physicalOffset"]: message for batch in walk.batches() for message in messages_of(batch)}
        walk.close()
        for place, wanted in self.acknowledged.items():
            message = found.get(place)
            self._claim(message is not None, f"acknowledged and missing: {wanted}; the log ends at {walk.end_offset}")
            assert message is not None
            real = Acknowledged(
                message["topic"], message["queueId"], message["queueOffset"], place, message["bodyMd5"],
                message["uniqKey"],
            )  # fmt: skip
            self._claim(real == wanted, f"acknowledged as {wanted}, stored as {real}")

    def _compare_with_rebuild(self) -> None:
        with tempfile.TemporaryDirectory(prefix="maxq-torture-") as folder:
            copy = Path(folder) / "store"
            shutil.copytree(self.store, copy)
            shutil.rmtree(copy / "consumequeue")
            recover(self._files(copy), SystemClock(), rebuild=True)
            self._claim(units_of(self._files()) == units_of(self._files(copy)), "ConsumeQueues differ from a rebuild")
            self._claim(entries_of(self._files()) == entries_of(self._files(copy)), "the index differs from a rebuild")


def units_of(files: StoreFiles) -> dict[tuple[str, int], list[QueueEntry]]:
    """ConsumeQueue units that point to messages, by topic and queue id."""
    found = {}
    for key, sequence in files.queues.items():
        queue = QueueFiles(files, sequence)
        found[key] = [unit for _, unit in queue.units()]
        queue.close()
    return {key: units for key, units in found.items() if units}


def entries_of(files: StoreFiles) -> set[tuple[int, int]]:
    """(physical offset, key hash) of everything indexed: a record may be entered twice around a crash, and a file
    may begin elsewhere."""
    found = set()
    for file in files.index:
        geometry = infer_geometry(files, file)
        if geometry is not None:
            reader = IndexReader(files, file, geometry)
            found |= {(entry.physical_offset, entry.key_hash) for _, entry in reader.entries()}
            reader.close()
    return found


async def torture(store: Path, rounds: int, seed: int, *, say: bool = False) -> Torture:
    """`rounds` kills on one store, then a clean end."""
    run = Torture(store, random.Random(seed))
    for number in range(rounds):
        await run.round()
        if say:
            print(
                f"round {number + 1} of {rounds}: {len(run.acknowledged)} messages acknowledged, none missing",
                flush=True,
            )
    await run.finish()
    return run


def main() -> int:
    parser = argparse.ArgumentParser(description="kill -9 under load")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
    options = parser.parse_args()
    print(f"seed {options.seed}")
    with tempfile.TemporaryDirectory(prefix="maxq-torture-") as folder:
        run = asyncio.run(torture(Path(folder) / "store", options.rounds, options.seed, say=True))
    print(
        f"{options.rounds} kills ({run.kills_while_starting} of them while starting): {len(run.acknowledged)} messages "
        "acknowledged, none missing; queues and index equal a rebuild from the log"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
