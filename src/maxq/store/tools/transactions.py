"""Transactions of a store directory, without a broker."""

from collections.abc import Iterator
from typing import Any

from maxq.errors import MaxQError
from maxq.protocol.json import json_dialect
from maxq.protocol.message.message import MessageExt, decode_record
from maxq.protocol.message.transaction_view import (
    DISCARD_TOPIC,
    GROUP,
    HALF_TOPIC,
    OP_TOPIC,
    TransactionView,
    Verdict,
    is_final,
    verdict,
)
from maxq.store.context.progress import Progress, no_progress
from maxq.store.log import record_cy as rc
from maxq.store.tools.log_walk import LogWalk
from maxq.store.tools.queue_files import QueueFiles
from maxq.store.tools.store_files import StoreFiles


class OfflineTransactions:
    """Reads the transactions of a store without a broker; never writes."""

    def __init__(self, files: StoreFiles, progress: Progress = no_progress) -> None:
        self._files = files
        self._progress = progress
        self._walk = LogWalk(files)

    def close(self) -> None:
        self._walk.close()

    def open(self, limit: int = 1_000) -> list[MessageExt]:
        """Return open transactions, by their current half messages, the oldest first."""
        offsets = self._offsets()
        view = TransactionView(offsets.get(HALF_TOPIC, 0))
        for message in self._queue(OP_TOPIC, offsets.get(OP_TOPIC, 0)):
            view.take_op(message)
        for message in self._queue(HALF_TOPIC, view.low):
            view.take_half(message)
            if len(view.open) >= limit:
                break
        return sorted(view.open.values(), key=lambda message: message.queue_offset)

    def history(self, transaction: str) -> tuple[Verdict, list[MessageExt]]:
        """Return the outcome of a transaction, by its id. Reads the whole log."""
        forms = [message for message in self._messages() if transaction in (message.uniq_key, message.offset_msg_id)]
        keys = {message.uniq_key for message in forms}
        if transaction not in keys:  # the transaction id was an offset message id
            forms = [message for message in self._messages() if message.uniq_key in keys]
        open_keys = {message.uniq_key or "" for message in self.open()}
        return verdict(open_keys, forms), forms

    def _messages(self) -> Iterator[MessageExt]:
        walk = LogWalk(self._files, self._progress)
        for batch in walk.batches():
            for place in range(batch.count):
                physical_offset = batch.rows[place * rc.SCAN_WIDTH + rc.C_PHYSICAL_OFFSET]
                message = decode_record(batch.view, physical_offset - batch.file.from_offset)
                if message.topic in (HALF_TOPIC, DISCARD_TOPIC) or is_final(message):
                    yield message
        walk.close()

    def _offsets(self) -> dict[str, int]:
        path = self._files.root / "config" / "consumerOffset.json"
        try:
            value: Any = json_dialect.loads(self._files.disk.read(path))
            table = value["offsetTable"]
            return {
                topic: int(next(iter(table[f"{topic}@{GROUP}"].values())))
                for topic in (HALF_TOPIC, OP_TOPIC)
                if table.get(f"{topic}@{GROUP}")
            }
        except (FileNotFoundError, KeyError, TypeError, ValueError, MaxQError):
            return {}  # then the whole log is read

    def _queue(self, topic: str, first: int) -> Iterator[MessageExt]:
        sequence = self._files.queues.get((topic, 0))
        if not sequence:
            return
        units = QueueFiles(self._files, sequence)
        for _, unit in units.units(max(first, units.first_index)):
            batch = self._walk.record_at(unit.physical_offset)
            if batch is not None:
                yield decode_record(batch.view, unit.physical_offset - batch.file.from_offset)
        units.close()
