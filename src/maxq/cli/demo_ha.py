"""The demonstration behind `make demo-ha`: a master dies, its slave goes on serving readers, the master comes back.

A name server, a SYNC_MASTER and its slave run as processes of their own; the client library does the rest. Every
message that was acknowledged must be read, and in the end both logs must be the same bytes. The exit code is 0 only
then.
"""

import logging
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from maxq.api import Admin, ConsumeContext, ConsumeFromWhere, Message, MessageExt, Producer, PushConsumer, SendStatus
from maxq.cli.demo import say
from maxq.cli.load.server_process import ServerProcess
from maxq.errors import MaxQError
from maxq.protocol.body.topic_config import TopicConfig
from maxq.runtime.files.system import SystemRng
from maxq.standalone import free_ports

TOPIC = "Payments"
GROUP = "ledger"
BEFORE = 20_000  # messages sent while both live; half are read before the master dies
AFTER = 5_000  # sent when the master is back
_HALF = BEFORE // 2
_PATIENCE_SECONDS = 60.0
_LOOK_SECONDS = 0.02


class Pair:
    """Name server, master and slave below one folder."""

    def __init__(self, folder: Path) -> None:
        rng = SystemRng()
        self.folder = folder
        port = free_ports(rng, "127.0.0.1", ())
        self.namesrv_address = f"127.0.0.1:{port}"
        self.namesrv = ServerProcess("namesrv", folder, ["namesrv", "-p", str(port)])
        self.master_port = free_ports(rng, "127.0.0.1", (-2, 1))
        self.master = self._broker("master", self.master_port, brokerId="0", brokerRole="SYNC_MASTER")
        self.slave = self._broker("slave", free_ports(rng, "127.0.0.1", (-2, 1)), brokerId="1", brokerRole="SLAVE")

    def _broker(self, name: str, port: int, **own: str) -> ServerProcess:
        settings = {
            "brokerName": "broker-a",
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": str(port),
            "namesrvAddr": self.namesrv_address,
            "storePathRootDir": str(self.folder / name),
            "slaveReadEnable": "true",
            **own,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        conf = self.folder / f"{name}.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return ServerProcess(name, self.folder, ["broker", "-c", str(conf)])

    def servers(self) -> list[ServerProcess]:
        return [self.slave, self.master, self.namesrv]

    def log_bytes(self, name: str) -> bytes:
        """The whole CommitLog of master or slave, without what was allocated ahead."""
        files = sorted((self.folder / name / "commitlog").iterdir())
        return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


class Ledger:
    """What a reader received. It takes `limit` messages, and more when the limit is lifted."""

    def __init__(self, limit: int) -> None:
        self.counts: Counter[int] = Counter()
        self._limit = limit
        self._changed = threading.Condition()

    def receive(self, messages: list[MessageExt], context: ConsumeContext) -> None:
        with self._changed:
            self._changed.wait_for(lambda: len(self.counts) < self._limit)
            self.counts.update(int(bytes(message.body)) for message in messages)
            self._changed.notify_all()

    def go_on(self, limit: int) -> None:
        with self._changed:
            self._limit = limit
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Until `count` different messages have come.

        Raises:
            MaxQError: nothing new came for a minute.
        """
        with self._changed:
            while len(self.counts) < count:
                have = len(self.counts)
                if not self._changed.wait(_PATIENCE_SECONDS) and len(self.counts) == have:
                    raise MaxQError(f"only {have:,} of {count:,} messages came")


def run(pair: Pair) -> None:
    """All steps in order; MaxQError if one does not hold."""
    for server in (pair.namesrv, pair.master, pair.slave):
        server.start()
    started = ", ".join(f"{server.name} {server.ready_seconds:.2f} s" for server in reversed(pair.servers()))
    say("servers", f"{started}; name server {pair.namesrv_address}")
    with Admin(pair.namesrv_address) as admin:
        admin.topics.create(f"127.0.0.1:{pair.master_port}", TopicConfig(TOPIC, 4, 4))
    ledger = Ledger(_HALF)
    reader = PushConsumer(
        GROUP, pair.namesrv_address, ledger.receive,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, consume_message_batch_max_size=32,
        pull_threshold_for_queue=64,  # so that the second half is not in the reader's memory when the master dies
    )  # fmt: skip
    reader.subscribe(TOPIC)
    with Producer("payments", pair.namesrv_address) as producer, reader:
        _send_first(producer)
        _send(producer, range(1, BEFORE))
        ledger.wait_for(_HALF)
        say("read", f"{len(ledger.counts):,} messages by group {GROUP}, from the master")
        _kill_master(pair, producer, ledger)
        _bring_master_back(pair, producer, ledger)
    _compare(pair, ledger)


def _send_first(producer: Producer) -> None:
    """The first message that master and slave both have; until the slave is there the answer says it is not."""
    began = time.monotonic()
    while (status := producer.send(_message(0)).send_status) is not SendStatus.SEND_OK:
        if time.monotonic() - began > _PATIENCE_SECONDS:
            raise MaxQError(f"no message was acknowledged by both in a minute; the last answer was {status.name}")
    say("first send", f"acknowledged by both {time.monotonic() - began:.2f} s later")


def _message(number: int) -> Message:
    return Message(TOPIC, b"%d" % number, {"KEYS": f"payment-{number}"})


def _send(producer: Producer, numbers: range) -> None:
    began = time.monotonic()
    results = producer.send_many(_message(number) for number in numbers)
    seconds = time.monotonic() - began
    unsafe = Counter(result.send_status.name for result in results if result.send_status is not SendStatus.SEND_OK)
    if unsafe:
        raise MaxQError(f"not every message was acknowledged by both: {dict(unsafe)}")
    rate = len(results) / seconds
    say("send", f"{len(results):,} messages, each on master and slave when acknowledged, {rate:,.0f}/s")


def _kill_master(pair: Pair, producer: Producer, ledger: Ledger) -> None:
    pair.master.kill()
    killed = time.monotonic()
    say("kill -9", "the master is dead")
    have = len(ledger.counts)
    ledger.go_on(BEFORE + AFTER)
    ledger.wait_for(have + 1000)
    say("slave", f"the reader goes on at the slave: 1,000 messages {time.monotonic() - killed:.2f} s after the kill")
    ledger.wait_for(BEFORE)
    say("slave", f"all {BEFORE:,} messages read, {time.monotonic() - killed:.2f} s after the kill")
    try:
        producer.send(_message(BEFORE), timeout_ms=1000)
    except MaxQError as error:
        say("send", f"refused meanwhile, as it must be: {str(error).splitlines()[0][:90]}")
    else:
        raise MaxQError("a message was taken although the master is dead")


def _bring_master_back(pair: Pair, producer: Producer, ledger: Ledger) -> None:
    pair.master.start_again()
    say("master", f"started on its files again, ready after {pair.master.ready_seconds:.2f} s")
    began = time.monotonic()
    while True:
        try:
            if producer.send(_message(BEFORE)).send_status is SendStatus.SEND_OK:
                break
        except MaxQError:  # the route still says that there is no master
            time.sleep(_LOOK_SECONDS)
        if time.monotonic() - began > _PATIENCE_SECONDS:
            raise MaxQError("no message was acknowledged by both in the minute after the master came back")
    say("send", f"acknowledged by both again {time.monotonic() - began:.2f} s later")
    _send(producer, range(BEFORE + 1, BEFORE + AFTER))
    ledger.wait_for(BEFORE + AFTER)


def _compare(pair: Pair, ledger: Ledger) -> None:
    lost = sorted(set(range(BEFORE + AFTER)) - set(ledger.counts))
    again = sum(count - 1 for count in ledger.counts.values())
    for server in pair.servers():
        server.stop()
    master, slave = pair.log_bytes("master"), pair.log_bytes("slave")
    say("result", f"{len(ledger.counts):,} messages read, {len(lost)} lost, {again} delivered more than once")
    say("logs", f"master {len(master):,} bytes, slave {len(slave):,}: {'the same' if master == slave else 'DIFFERENT'}")
    if lost or master != slave:
        raise MaxQError(f"lost: {lost[:10]}, logs equal: {master == slave}")


def main() -> int:
    """Run the demonstration on a temporary folder."""
    logging.getLogger("maxq.client").setLevel(logging.ERROR)  # that the master does not answer is part of the story
    folder = Path(tempfile.mkdtemp(prefix="maxq-ha-"))
    pair = Pair(folder)
    try:
        run(pair)
    except (MaxQError, OSError) as error:
        print(f"maxq: {error or type(error).__name__}", file=sys.stderr)
        return 1
    finally:
        for server in pair.servers():
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
