"""The fast path of sends: what `RemotingServer.batch_path` of a broker does with an arrival.

Leading fast-path sends of the receive buffer become rows (protocol/send_scanner_cy), the rows become records (the
store's `append_rows`), and all their answers one buffer. A frame that is not such a send, or must be refused, stays in
the buffer: the server decodes it and gives it to the SendMessageProcessor, which knows every rule and every remark. So
this module makes no decisions: it only handles sends that the processor would have stored, too.

Under SYNC_FLUSH, and with replicas to wait for, the answers of one arrival wait together (acknowledgement.py).
"""

from array import array
from functools import partial
from typing import NamedTuple

from maxq.access.guard import Guard
from maxq.auth.signing_cy import verify_arrivals, verify_rows
from maxq.broker.bundles import Environment, Limits, Messages
from maxq.broker.stats.stage_times import ONE_IN, Stage, StageSample, StageTimes
from maxq.codes import CURRENT_VERSION, LanguageCode, ResponseCode
from maxq.config.broker_config import BrokerConfig
from maxq.protocol.frame.remoting_command import LONGEST_HEADER, decode_frame
from maxq.protocol.frame.replies_cy import encode_replies
from maxq.protocol.frame.send_rows import (
    ARRIVAL_WIDTH,
    F_HALF,
    F_NO_WAIT,
    R_FLAGS,
    R_FRAME,
    R_SIZE,
    R_TOPIC,
    R_TOPIC_SIZE,
    ROW_WIDTH,
)
from maxq.protocol.frame.send_scanner_cy import SendScanner
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message_properties import encode_properties
from maxq.remoting.batched_reads import BatchedReads
from maxq.remoting.server import Connection


class SendPath:
    """Answers batches of sends. One per broker; called for every arrival of bytes on any of its connections."""

    def __init__(self, env: Environment, messages: Messages, limits: Limits, stages: StageTimes) -> None:
        self._store = messages.store
        self._acknowledgement = messages.acknowledgement
        self._fast_failure = limits.fast_failure
        self._settings = env.settings
        self._clock = env.clock
        self._own = env.own
        self._half_stored = messages.hooks.half_stored
        self._stages = stages
        self._quotas = limits.quotas
        self._until_followed = ONE_IN
        self._rpc_latency = env.rpc_latency  # is told of what is answered here
        self._guard = env.guard
        self._scanner = SendScanner(env.settings.server.frame_max_length)
        if env.guard is not None:
            self._scanner.expect_signatures()
        self._broker: BrokerConfig | None = None  # the settings from which the next four attributes were read
        self._store_host = self._region = self._trace_on = self._suffix = b""

    def _read_settings(self) -> None:
        """Read the settings that go into every record and answer: at the first arrival, when the broker's address is
        known, and again when a live update replaced the broker's settings."""
        self._broker = broker = self._settings.broker
        self._store_host = self._own.store_host
        self._region = broker.region_id.encode()
        self._trace_on = b"true" if broker.trace_on else b"false"
        self._scanner.takes_halves = not broker.reject_transaction_message
        self._suffix = encode_properties(
            {
                const.PROPERTY_MSG_REGION: broker.region_id,
                const.PROPERTY_TRACE_SWITCH: self._trace_on.decode(),
                const.PROPERTY_CLUSTER: broker.broker_cluster_name,
            }
        ).encode()

    def __call__(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        """Take the leading fast-path sends of buffer[start:end]; returns the position behind the last one taken."""
        if self._settings.broker is not self._broker:
            self._read_settings()
        scanner = self._scanner
        sample = self._follow() if self._until_followed == 0 else None
        taken = scanner.scan(buffer, start, end)
        if self._guard is not None:
            taken = self._verify(self._guard, connection, buffer, taken)
        if scanner.count == 0 or not self._may_append():
            return start
        if self._quotas.limits_users and self._quotas.must_wait(connection):
            return start
        self._until_followed -= 1
        if sample is not None:
            sample.ended(Stage.RECEIVE)
        done = 0
        while done < scanner.count:
            appended = self._append(connection, buffer, done, sample)
            sample = None
            done += appended
            if appended == 0:
                return scanner.rows[done * ROW_WIDTH + R_FRAME]
        if start == 0 and taken == end:
            connection.note_fast_path_arrival()
        return taken

    def take(self, arrivals: BatchedReads) -> None:
        """Store the leading sends of all arrivals of a turn. They are all answered together."""
        if not self._may_append() or self._quotas.limits_users:
            return  # users' quotas are checked for each connection, in `__call__`
        if self._settings.broker is not self._broker:
            self._read_settings()
        scanner, table, connections = self._scanner, arrivals.table, arrivals.connections
        sample = self._follow() if self._until_followed == 0 else None
        scanner.scan_arrivals(arrivals.buffer, table, len(connections))
        if scanner.count == 0 or (self._guard is not None and not self._verify_arrivals(self._guard, arrivals)):
            return
        self._until_followed -= 1
        if sample is not None:
            sample.ended(Stage.RECEIVE)
        appended = self._store.fast_path_writer.append_arrivals(
            arrivals.buffer, scanner.scratch, scanner.rows, table, arrivals.hosts, self._suffix
        )
        if appended.rows == 0:
            return
        self._fast_failure.append_took(appended.took_ms)
        if sample is not None:
            sample.ended(Stage.APPEND)
        answers = bytearray()
        encode_replies(
            scanner.rows, 0, scanner.count, arrivals.buffer, scanner.scratch, self._store_host, self._region,
            self._trace_on, LanguageCode.PYTHON, CURRENT_VERSION, appended.log, appended.file_from_offset,
            ResponseCode.SUCCESS, answers,
        )  # fmt: skip
        kept = table[: len(connections) * ARRIVAL_WIDTH]
        wait = _Wait(appended.rows, self._now_ms(), sample)
        later = partial(self._answer_arrivals, arrivals, answers, kept, connections, wait)
        if self._acknowledgement.when(appended.end_offset, later, sample):
            self._fast_failure.sends.enter(len(connections))
        else:
            arrivals.answer(answers, table, connections)
            self._answered(appended.rows, appended.took_ms, sample)

    def _verify(self, guard: Guard, connection: Connection, buffer: bytearray, taken: int) -> int:
        """Remove rows without a valid signature of an authorized user, from the first such row on; the guard knows why.
        Returns the position behind the remaining rows, `taken` if all remain."""
        scanner = self._scanner
        sends = guard.session(connection).sends
        count = scanner.count
        verified = verify_rows(buffer, scanner.content, scanner.signed_rows, scanner.rows, 0, count, sends)
        if verified == count:
            return taken
        scanner.count = verified
        return scanner.rows[verified * ROW_WIDTH + R_FRAME]

    def _verify_arrivals(self, guard: Guard, arrivals: BatchedReads) -> bool:
        """Verify the signatures of each arrival of a turn. Returns False if nothing is left."""
        scanner = self._scanner
        sends = [guard.session(connection).sends for connection in arrivals.connections]
        rows, table = scanner.rows, arrivals.table
        return verify_arrivals(arrivals.buffer, scanner.content, scanner.signed_rows, rows, table, sends) > 0

    def _follow(self) -> StageSample:
        """Start timing this arrival, one in ONE_IN."""
        self._until_followed = ONE_IN
        return self._stages.begin(self._fast_failure.head_wait_ms())

    def _now_ms(self) -> int:
        """Returns the time in ms for the latency of sends that wait; 0 where no metric needs it."""
        return 0 if self._rpc_latency is None else self._clock.monotonic_ms()

    def _answered(self, rows: int, took_ms: int, sample: StageSample | None) -> None:
        if self._rpc_latency is not None:
            self._rpc_latency.sends(took_ms, rows)
        if sample is not None:
            sample.ended(Stage.ANSWER)
            sample.finish(rows)

    def _may_append(self) -> bool:
        """Return whether sends can be stored now. Otherwise SendMessageProcessor makes the refusals, with their
        remarks."""
        begins_ms = self._settings.broker.start_accept_send_request_time_stamp
        return (
            self._store.admission.refusal() is None
            and self._acknowledgement.refusal() is None
            and self._fast_failure.refuse_send() is None
            and (begins_ms <= 0 or self._clock.wall_ms() >= begins_ms)
        )

    def _append(self, connection: Connection, buffer: bytearray, first: int, sample: StageSample | None) -> int:
        """Append and answer the rows from `first` on that fit into the current file of the log. Returns how many."""
        scanner = self._scanner
        appended = self._store.fast_path_writer.append_rows(
            buffer, scanner.scratch, scanner.rows, first, scanner.count - first, connection.remote_host, self._suffix
        )
        if appended.rows == 0:
            return 0
        self._fast_failure.append_took(appended.took_ms)
        if self._quotas.limits_users:
            size = sum(scanner.rows[row * ROW_WIDTH + R_SIZE] for row in range(first, first + appended.rows))
            self._quotas.sent(connection, appended.rows, size)
        if sample is not None:
            sample.ended(Stage.APPEND)
        if scanner.half_count:
            self._count_halves(buffer, first, appended.rows)
        answers = bytearray()
        encode_replies(
            scanner.rows, first, appended.rows, buffer, scanner.scratch, self._store_host, self._region,
            self._trace_on, LanguageCode.PYTHON, CURRENT_VERSION, appended.log, appended.file_from_offset,
            ResponseCode.SUCCESS, answers,
        )  # fmt: skip
        if self._acknowledgement.may_wait():
            if not self._somebody_waits(first, appended.rows):
                self._acknowledgement.without_waiting()
            else:
                later = partial(self._answer, connection, answers, _Wait(appended.rows, self._now_ms(), sample))
                if self._acknowledgement.when(appended.end_offset, later, sample):
                    self._fast_failure.sends.enter()
                    return appended.rows
        connection.write([memoryview(answers)])
        self._answered(appended.rows, appended.took_ms, sample)
        return appended.rows

    def _count_halves(self, buffer: bytearray, first: int, count: int) -> None:
        rows = self._scanner.rows
        for row in range(first * ROW_WIDTH, (first + count) * ROW_WIDTH, ROW_WIDTH):
            if rows[row + R_FLAGS] & F_HALF:
                topic = rows[row + R_TOPIC]
                self._half_stored(buffer[topic : topic + rows[row + R_TOPIC_SIZE]].decode())

    def _somebody_waits(self, first: int, count: int) -> bool:
        """Return whether a row lacks WAIT=false, so that its sender waits; nearly always the first one does."""
        rows = self._scanner.rows
        for row in range(first, first + count):  # noqa: SIM110 a generator costs more than the row, nearly always the first
            if not rows[row * ROW_WIDTH + R_FLAGS] & F_NO_WAIT:
                return True
        return False

    def _answer(self, connection: Connection, answers: bytearray, wait: "_Wait", code: ResponseCode) -> None:
        self._fast_failure.sends.leave()
        if wait.sample is not None:
            wait.sample.waited()
        connection.write([memoryview(answers if code == ResponseCode.SUCCESS else with_code(answers, code))])
        self._answered(wait.rows, self._now_ms() - wait.began_ms, wait.sample)

    def _answer_arrivals(
        self,
        arrivals: BatchedReads,
        answers: bytearray,
        table: "array[int]",
        connections: list[Connection],
        wait: "_Wait",
        code: ResponseCode,
    ) -> None:
        self._fast_failure.sends.leave(len(connections))
        if wait.sample is not None:
            wait.sample.waited()
        arrivals.answer(answers if code == ResponseCode.SUCCESS else with_code(answers, code), table, connections)
        self._answered(wait.rows, self._now_ms() - wait.began_ms, wait.sample)


class _Wait(NamedTuple):
    """A run of sends whose answers wait for the disk and the replicas."""

    rows: int
    began_ms: int  # monotonic
    sample: StageSample | None


def with_code(answers: bytearray, code: ResponseCode) -> bytearray:
    """Return the same answers with `code`: stored, but the disk or the replicas did not confirm in time."""
    changed = bytearray()
    position = 0
    while position < len(answers):
        length = int.from_bytes(answers[position : position + 4], "big")
        command = decode_frame(bytes(answers[position + 4 : position + 4 + length]), LONGEST_HEADER)
        command.code = code
        changed += command.encode()
        position += 4 + length
    return changed
