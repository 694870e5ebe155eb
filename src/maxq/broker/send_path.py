"""The batch path of plain sends: what `RemotingServer.batch_path` of a broker does with an arrival.

Leading plain sends of the receive buffer become rows (protocol/frames_cy), the rows become records (the store's
`append_rows`), and all their answers one buffer. Whatever is not plain, or must be refused, is left where it is: the
server decodes that frame and gives it to the SendMessageProcessor, which knows every rule and every remark. So this
module decides nothing; it only takes what that processor would have stored anyway.

Under SYNC_FLUSH, and with replicas to wait for, the answers of one arrival wait together (acknowledgement.py).
"""

from functools import partial

from maxq.broker.acknowledgement import Acknowledgement
from maxq.broker.fast_failure import FastFailure
from maxq.codes import CURRENT_VERSION, LanguageCode, ResponseCode
from maxq.config.settings import BrokerSettings
from maxq.protocol import message_const as const
from maxq.protocol.frames_cy import SendScanner, encode_replies
from maxq.protocol.message_properties import encode_properties
from maxq.protocol.remoting_command import decode_frame
from maxq.remoting.server import Connection
from maxq.runtime.interfaces import Clock
from maxq.store.log_cy import F_NO_WAIT, R_FLAGS, R_FRAME, ROW_WIDTH
from maxq.store.message_store import MessageStore


class SendPath:
    """One per broker; called for every arrival of bytes on any of its connections."""

    def __init__(
        self,
        store: MessageStore,
        acknowledgement: Acknowledgement,
        fast_failure: FastFailure,
        *,
        settings: BrokerSettings,
        clock: Clock,
        store_host: bytes,
    ) -> None:
        """
        Args:
            store_host: address and 4-byte port that clients reach, 8 or 20 bytes.
        """
        self._store = store
        self._acknowledgement = acknowledgement
        self._fast_failure = fast_failure
        self._settings = settings
        self._clock = clock
        self._store_host = store_host
        self._read_settings()
        self._scanner = SendScanner(settings.server.frame_max_length)

    def _read_settings(self) -> None:
        """What goes into every record and answer; read again when a live update replaced the broker's settings."""
        broker = self._broker = self._settings.broker
        self._region = broker.region_id.encode()
        self._trace_on = b"true" if broker.trace_on else b"false"
        self._suffix = encode_properties(
            {
                const.PROPERTY_CLUSTER: broker.broker_cluster_name,
                const.PROPERTY_MSG_REGION: broker.region_id,
                const.PROPERTY_TRACE_SWITCH: self._trace_on.decode(),
            }
        ).encode()

    def __call__(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        """Take the leading plain sends of buffer[start:end]; returns the position behind the last one taken."""
        scanner = self._scanner
        taken = scanner.scan(buffer, start, end)
        if scanner.count == 0 or not self._may_append():
            return start
        if self._settings.broker is not self._broker:
            self._read_settings()
        done = 0
        while done < scanner.count:
            appended = self._append(connection, buffer, done)
            done += appended
            if appended == 0:
                return scanner.rows[done * ROW_WIDTH + R_FRAME]
        return taken

    def _may_append(self) -> bool:
        """Anything to refuse is the general processor's: it knows the remark."""
        begins_ms = self._settings.broker.start_accept_send_request_time_stamp
        return (
            self._store.refusal() is None
            and self._acknowledgement.refusal() is None
            and self._fast_failure.refuse_send() is None
            and (begins_ms <= 0 or self._clock.wall_ms() >= begins_ms)
        )

    def _append(self, connection: Connection, buffer: bytearray, first: int) -> int:
        """Append and answer the rows from `first` on that go into one file of the log; how many."""
        scanner = self._scanner
        appended = self._store.append_rows(
            buffer, scanner.scratch, scanner.rows, first, scanner.count - first, connection.remote_host, self._suffix
        )
        if appended.rows == 0:
            return 0
        self._fast_failure.append_took(appended.took_ms)
        answers = bytearray()
        encode_replies(
            scanner.rows, first, appended.rows, buffer, scanner.scratch, self._store_host, self._region,
            self._trace_on, LanguageCode.PYTHON, CURRENT_VERSION, appended.log, appended.file_from_offset,
            ResponseCode.SUCCESS, answers,
        )  # fmt: skip
        if not self._somebody_waits(first, appended.rows):
            self._acknowledgement.without_waiting()
        elif self._acknowledgement.when(appended.end_offset, partial(self._answer, connection, answers)):
            self._fast_failure.sends.enter()
            return appended.rows
        connection.write([memoryview(answers)])
        return appended.rows

    def _somebody_waits(self, first: int, count: int) -> bool:
        """Has one of the rows not WAIT=false? It is the first one, nearly always."""
        rows = self._scanner.rows
        for row in range(first, first + count):  # noqa: SIM110 a generator costs more than the row, nearly always the first
            if not rows[row * ROW_WIDTH + R_FLAGS] & F_NO_WAIT:
                return True
        return False

    def _answer(self, connection: Connection, answers: bytearray, code: ResponseCode) -> None:
        self._fast_failure.sends.leave()
        connection.write([memoryview(answers if code == ResponseCode.SUCCESS else with_code(answers, code))])


def with_code(answers: bytearray, code: ResponseCode) -> bytearray:
    """The same answers with `code`: stored, but the disk or the replicas did not say so in time."""
    changed = bytearray()
    position = 0
    while position < len(answers):
        length = int.from_bytes(answers[position : position + 4], "big")
        command = decode_frame(bytes(answers[position + 4 : position + 4 + length]))
        command.code = code
        changed += command.encode()
        position += 4 + length
    return changed
