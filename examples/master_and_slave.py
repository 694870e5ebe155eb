"""A master dies, its slave goes on serving readers, the master comes back, and both have the same log.

A name server, a SYNC_MASTER and its slave run as processes of their own. Every message that was acknowledged must be
read, and in the end both logs must be the same bytes.
"""

import logging
import sys
import threading
import time
from collections import Counter
from pathlib import Path

from examples.helpers import PATIENCE_SECONDS, broker, free_port, name_server, run_example, say
from maxq.api import Admin, ConsumeContext, ConsumeFromWhere, Message, MessageExt, Producer, PushConsumer, SendStatus
from maxq.errors import MaxQError
from maxq.protocol.body.topic_config import TopicConfig

TOPIC = "Payments"
GROUP = "ledger"
BEFORE = 20_000  # messages sent while both live; half are read before the master dies
AFTER = 5_000  # sent when the master is back
HALF = BEFORE // 2


class Pair:
    """Name server, master and slave below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port, master_port, slave_port = free_port(), free_port(-2, 1), free_port(-2, 1)
        self.namesrv_address = f"127.0.0.1:{port}"
        self.master_address = f"127.0.0.1:{master_port}"
        self.namesrv = name_server(folder, port)
        self.master = broker("master", folder, self.namesrv_address, master_port, brokerRole="SYNC_MASTER")
        self.slave = broker("slave", folder, self.namesrv_address, slave_port, brokerRole="SLAVE", brokerId="1")
        self.servers = [self.namesrv, self.master, self.slave]

    def log_bytes(self, name: str) -> bytes:
        """The whole CommitLog of master or slave, without what was allocated ahead."""
        files = sorted((self.folder / name / "commitlog").iterdir())
        return b"".join(file.read_bytes() for file in files).rstrip(b"\0")


class Ledger:
    """Counts what a reader received. It takes `limit` messages, and more when the limit is lifted."""

    def __init__(self, limit: int) -> None:
        self.counts: Counter[int] = Counter()
        self._limit = limit
        self._changed = threading.Condition()

    def receive(self, messages: list[MessageExt], context: ConsumeContext) -> None:
        """Listen: called in a thread of the consumer's."""
        with self._changed:
            self._changed.wait_for(lambda: len(self.counts) < self._limit)
            self.counts.update(int(bytes(message.body)) for message in messages)
            self._changed.notify_all()

    def lift(self, limit: int) -> None:
        """Take so many messages from now on."""
        with self._changed:
            self._limit = limit
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait until `count` different messages have come; MaxQError if nothing new comes for a minute."""
        with self._changed:
            while (have := len(self.counts)) < count:
                if not self._changed.wait(PATIENCE_SECONDS) and len(self.counts) == have:
                    raise MaxQError(f"only {have:,} of {count:,} messages came")


def example(folder: Path) -> None:
    """All steps in order; MaxQError if one does not hold."""
    pair = Pair(folder)
    try:
        for server in pair.servers:
            server.start()
        started = ", ".join(f"{server.name} {server.ready_seconds:.2f} s" for server in pair.servers)
        say("servers", f"{started}; name server {pair.namesrv_address}")
        with Admin(pair.namesrv_address) as admin:
            admin.topics.create(pair.master_address, TopicConfig(TOPIC, 4, 4))
        ledger = Ledger(HALF)
        with Producer("payments", pair.namesrv_address) as producer, reader(pair, ledger):
            send_until_both_have_it(producer, 0, "first send", "acknowledged by both")
            send_all(producer, range(1, BEFORE))
            ledger.wait_for(HALF)
            say("read", f"{len(ledger.counts):,} messages by group {GROUP}, from the master")
            read_on_at_the_slave(pair, producer, ledger)
            pair.master.start_again()
            say("master", f"started on its files again, ready after {pair.master.ready_seconds:.2f} s")
            send_until_both_have_it(producer, BEFORE, "send", "acknowledged by both again")
            send_all(producer, range(BEFORE + 1, BEFORE + AFTER))
            ledger.wait_for(BEFORE + AFTER)
    finally:
        for server in reversed(pair.servers):
            server.stop()
    compare(pair, ledger)


def reader(pair: Pair, ledger: Ledger) -> PushConsumer:
    """A consumer that gives what it reads to `ledger`."""
    consumer = PushConsumer(
        GROUP,
        pair.namesrv_address,
        ledger.receive,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        consume_message_batch_max_size=32,
        pull_threshold_for_queue=64,  # so that the second half is not in the reader's memory when the master dies
    )
    consumer.subscribe(TOPIC)
    return consumer


def message(number: int) -> Message:
    """The message of one payment."""
    return Message(TOPIC, b"%d" % number, {"KEYS": f"payment-{number}"})


def send_until_both_have_it(producer: Producer, number: int, title: str, text: str) -> None:
    """Send one message until the answer is that master and slave have it: the slave is not there yet, or the name
    server still says that there is no master."""
    began = time.monotonic()
    status = None
    while status is not SendStatus.SEND_OK:
        if time.monotonic() - began > PATIENCE_SECONDS:
            raise MaxQError(f"no message was acknowledged by both in a minute; the last answer was {status}")
        try:
            status = producer.send(message(number)).send_status
        except MaxQError:
            time.sleep(0.02)
    say(title, f"{text} {time.monotonic() - began:.2f} s later")


def send_all(producer: Producer, numbers: range) -> None:
    """Send many messages, each of which master and slave must have when it is acknowledged."""
    began = time.monotonic()
    results = producer.send_many(message(number) for number in numbers)
    seconds = time.monotonic() - began
    unsafe = Counter(result.send_status.name for result in results if result.send_status is not SendStatus.SEND_OK)
    if unsafe:
        raise MaxQError(f"not every message was acknowledged by both: {dict(unsafe)}")
    rate = len(results) / seconds
    say("send", f"{len(results):,} messages, each on master and slave when acknowledged, {rate:,.0f}/s")


def read_on_at_the_slave(pair: Pair, producer: Producer, ledger: Ledger) -> None:
    """Kill the master: the reader goes on at the slave, and nothing can be sent."""
    pair.master.kill()
    killed = time.monotonic()
    say("kill -9", "the master is dead")
    have = len(ledger.counts)
    ledger.lift(BEFORE + AFTER)
    ledger.wait_for(have + 1000)
    say("slave", f"the reader goes on at the slave: 1,000 messages {time.monotonic() - killed:.2f} s after the kill")
    ledger.wait_for(BEFORE)
    say("slave", f"all {BEFORE:,} messages read, {time.monotonic() - killed:.2f} s after the kill")
    try:
        producer.send(message(BEFORE), timeout_ms=1000)
    except MaxQError as error:
        say("send", f"refused meanwhile, as it must be: {str(error).splitlines()[0][:90]}")
    else:
        raise MaxQError("a message was taken although the master is dead")


def compare(pair: Pair, ledger: Ledger) -> None:
    """Hold what was read against what was sent, and the master's log against the slave's."""
    lost = sorted(set(range(BEFORE + AFTER)) - set(ledger.counts))
    again = sum(count - 1 for count in ledger.counts.values())
    master, slave = pair.log_bytes("master"), pair.log_bytes("slave")
    say("result", f"{len(ledger.counts):,} messages read, {len(lost)} lost, {again} delivered more than once")
    say("logs", f"master {len(master):,} bytes, slave {len(slave):,}: {'the same' if master == slave else 'DIFFERENT'}")
    if lost or master != slave:
        raise MaxQError(f"lost: {lost[:10]}, logs equal: {master == slave}")


if __name__ == "__main__":
    logging.getLogger("maxq.client").setLevel(logging.ERROR)  # that the master does not answer is part of the story
    sys.exit(run_example(example))
