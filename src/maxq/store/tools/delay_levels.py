"""How long the messages of each delay level wait: as broker.conf says, else as the queues of delayed messages show.

A unit of SCHEDULE_TOPIC_XXXX has the moment of delivery in place of a tags code, so it tells the delay of its level.
Who built such queues anew with the delays of an untouched broker would deliver at the wrong time.

Source:
    ScheduleMessageService.computeDeliverTimestamp; queue id = level - 1.
"""

from itertools import islice
from typing import Final

from maxq.store.log import record_cy as rc
from maxq.store.tools.expectation import SCHEDULE_TOPIC
from maxq.store.tools.log_walk import LogWalk
from maxq.store.tools.queue_files import QueueFiles
from maxq.store.tools.store_files import DataFile, StoreFiles

_PROBES: Final = 5  # units of a queue that must agree for a level to be inferred
_SECOND_MS: Final = 1000


def delay_levels_ms(files: StoreFiles) -> tuple[int, ...]:
    """Return the milliseconds of level 1, 2, …; a level whose queue shows no delay, or more than one, has RocketMQ's
    default."""
    levels = dict(enumerate(files.settings.delay_levels_ms))
    if not files.settings.properties:
        lookup = LogWalk(files)
        for (topic, queue_id), sequence in files.queues.items():
            delay_ms = _shown(files, sequence, lookup) if topic == SCHEDULE_TOPIC else None
            if delay_ms is not None:
                levels[queue_id] = delay_ms
        lookup.close()
    return tuple(levels.get(place, levels[len(files.settings.delay_levels_ms) - 1]) for place in range(max(levels) + 1))


def _shown(files: StoreFiles, sequence: list[DataFile], lookup: LogWalk) -> int | None:
    """Return the delay on which a queue's first units agree. A damaged unit would not give a whole number of
    seconds."""
    queue = QueueFiles(files, sequence)
    start = files.log[0].from_offset if files.log else 0
    there = (unit for _, unit in queue.units() if unit.physical_offset >= start)
    found = set()
    for unit in islice(there, _PROBES):
        record = lookup.record_at(unit.physical_offset)
        if record is not None:
            found.add(unit.tags_code - record.rows[rc.C_STORE_TIMESTAMP])
    queue.close()
    delay_ms = found.pop() if len(found) == 1 else -1
    return delay_ms if delay_ms > 0 and delay_ms % _SECOND_MS == 0 else None


def delay_levels_text(levels_ms: tuple[int, ...]) -> str:
    """Returns the levels as text in the form of messageDelayLevel."""
    return " ".join(f"{level // _SECOND_MS}s" for level in levels_ms)
