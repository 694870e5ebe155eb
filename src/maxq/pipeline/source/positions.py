"""Where reading starts and ends: from what the options say to an offset of each queue."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

from maxq.errors import PipelineError, RemotingError
from maxq.pipeline.options.read_options import EARLIEST, LATEST, Position, QueueSelection
from maxq.pipeline.records.losses import Losses
from maxq.pipeline.source.offsets import Offsets
from maxq.pipeline.wire.wire_client import Failures, ReportedOffset, WireClient
from maxq.protocol.body.static_topic import is_mock_broker
from maxq.protocol.message.message_queue import MessageQueue

log: Final = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.2
_Found = TypeVar("_Found")


def selected_queues(client: WireClient, selection: QueueSelection) -> dict[MessageQueue, str]:
    """Return the queues to read at the beginning of a read, with their brokers.

    Raises:
        PipelineError: a topic that was named, or an assigned queue, is not there; nor after rocketmq.brokerWait.
    """
    deadline = client.clock.monotonic_ms() + client.options.broker_wait_ms
    while True:
        reason: object = "no broker that has it is registered at the name server"
        found: dict[MessageQueue, str] = {}
        try:
            found = client.find_queues(selection)
            if not _missing(selection, found):
                return found
            wait = False  # a name server answered that it does not know the topic, which will not change soon
        except RemotingError as error:
            reason, wait = error, True
        if not wait or client.clock.monotonic_ms() >= deadline:
            what = ", ".join(_missing(selection, found)[:5]) or f"topics like {selection.pattern}"
            raise PipelineError(f"{what} cannot be read: {reason} ({client.options.namesrv})")
        time.sleep(_PAUSE_SECONDS)


def queues_there(client: WireClient, selection: QueueSelection) -> list[MessageQueue]:
    """Return the selected queues that exist, perhaps none. A name server that cannot be reached is waited for.

    Raises:
        PipelineError: none answers within rocketmq.brokerWait.
    """
    deadline = client.clock.monotonic_ms() + client.options.broker_wait_ms
    while True:
        try:
            return sorted(client.find_queues(selection))
        except RemotingError as error:
            if client.clock.monotonic_ms() >= deadline:
                raise PipelineError(f"topics cannot be looked up: {error}") from error
        time.sleep(_PAUSE_SECONDS)


def _missing(selection: QueueSelection, found: Iterable[MessageQueue]) -> list[str]:
    """Describe the named topics and queues that do not exist."""
    queues = set(found)
    topics = {queue.topic for queue in queues}
    names = [f"topic {topic}" for topic in selection.topics if topic not in topics]
    for topic, brokers in (selection.queues or {}).items():
        for broker, ids in brokers.items():
            there = {queue.queue_id for queue in queues if queue.topic == topic and broker in ("*", queue.broker_name)}
            names += [f"queue {number} of {topic} on {broker}" for number in ids if number not in there]
    return names


def ask_until_answered(
    client: WireClient,
    ask: Callable[[list[MessageQueue]], tuple[dict[MessageQueue, _Found], Failures]],
    queues: Iterable[MessageQueue],
    *,
    but_deleted: bool = False,
) -> dict[MessageQueue, _Found]:
    """Return answers about all `queues`, with `but_deleted` except those of topics that were deleted. Brokers that
    cannot be reached are waited for.

    Raises:
        PipelineError: some did not answer within rocketmq.brokerWait.
    """
    deadline = client.clock.monotonic_ms() + client.options.broker_wait_ms
    found: dict[MessageQueue, _Found] = {}
    left, was_told = list(queues), False
    while left:
        answered, failed = ask(left)
        found |= answered
        left = [queue for queue in left if queue not in answered]
        if but_deleted:
            left = [queue for queue in left if not client.was_deleted(queue.topic, queue.broker_name)]
        if not left:
            break
        if client.clock.monotonic_ms() >= deadline:
            reason = failed.get(left[0], "no answer")
            raise PipelineError(f"{len(left)} queues, such as {left[0]}, cannot be asked about: {reason}")
        if not was_told:
            log.warning("%d queues, such as %s, wait for their broker: %s", len(left), left[0], failed.get(left[0]))
            was_told = True
        time.sleep(_PAUSE_SECONDS)
        client.forget_routes()
    return found


class QueueEnds:
    """Where the queues of one plan end.

    Attributes:
        seen: what brokers told. The answer of a master is kept if a slave, which may lag, answers a later question.
    """

    def __init__(self, client: WireClient, queues: Iterable[MessageQueue]) -> None:
        """Ask the brokers where these queues end.

        Raises:
            PipelineError: a broker did not answer in time, see `ask_until_answered`.
        """
        self._client = client
        self.seen = ask_until_answered(client, client.max_offsets, queues)

    def ask(self, queues: Iterable[MessageQueue]) -> Offsets:
        """Ask the brokers again where some of the queues end.

        Raises:
            PipelineError: a broker did not answer in time, see `ask_until_answered`.
        """
        found = ask_until_answered(self._client, self._client.max_offsets, queues)
        self.seen |= {queue: _better(self.seen.get(queue), one) for queue, one in found.items()}
        return {queue: self.seen[queue].offset for queue in found}


def _better(before: ReportedOffset | None, now: ReportedOffset) -> ReportedOffset:
    if before is None or now.is_master or not before.is_master:
        return now
    return now if now.incarnation == before.incarnation and now.offset > before.offset else before


def resolve(
    client: WireClient,
    position: Position,
    queues: Iterable[MessageQueue],
    option: str,
    losses: Losses,
    ends: QueueEnds,
) -> Offsets:
    """Return the offset of each queue at `position`.

    Args:
        option: name of the option that gave the position, for errors.
        ends: ends of these queues.
        losses: is told of offsets behind the end of a queue; if that is no error the queue's end is meant.

    Raises:
        DataLossError: see `losses`.
        PipelineError: a queue that the position says nothing about; brokers that do not answer.
    """
    wanted = sorted(queues)
    if position.kind == "earliest":
        return lows_of(client, wanted)
    if position.kind == "latest":
        return ends.ask(wanted)
    if position.kind == "group":
        committed = ask_until_answered(client, lambda some: client.group_offsets(position.group, some), wanted)
        without = [queue for queue, offset in committed.items() if offset is None]
        lows = lows_of(client, without)
        return {queue: lows[queue] if offset is None else offset for queue, offset in committed.items()}
    if position.kind == "timestamp":
        return _by_time(client, position, wanted, option, ends)
    told = _told(position, wanted, option)
    told |= lows_of(client, [queue for queue in wanted if told[queue] == EARLIEST])
    told |= ends.ask([queue for queue in wanted if told[queue] == LATEST])
    return told | _ends_of_those_beyond(client, told, option, losses)


def _ends_of_those_beyond(client: WireClient, told: Offsets, option: str, losses: Losses) -> Offsets:
    """Return the ends of the queues that end before their offset in `told`."""
    ends = ask_until_answered(client, client.max_offsets, sorted(told))
    beyond = {queue: one.offset for queue, one in ends.items() if one.is_master and one.offset < told[queue]}
    lows = offsets_of(ask_until_answered(client, client.min_offsets, sorted(beyond)))
    for queue, end in sorted(beyond.items()):
        first, last = (told[queue], None) if option == "startingOffsets" else (end, told[queue])
        reason = f"{option} says {told[queue]}, and the queue ends before"
        losses.offsets(name_of(queue), first, last, (lows[queue], end), reason)
    return beyond


def name_of(queue: MessageQueue) -> str:
    """Return a queue as errors and logs show it: topic/broker/id."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


def check_named(
    position: Position, selection: QueueSelection, queues: Iterable[MessageQueue], option: str, losses: Losses
) -> None:
    """Check the queues that a position names, except for broker "*".

    Args:
        queues: all that `selection` has.
        losses: is told of queues that are not there.

    Raises:
        DataLossError: see `losses`.
        PipelineError: a queue that is not read.
    """
    there = set(queues)
    for topic, brokers in (position.table or {}).items():
        for broker, ids in brokers.items():
            found = [one for one in there if one.topic == topic and broker in ("*", one.broker_name)]
            for queue_id, number in ids.items():
                if any(one.queue_id == queue_id for one in found):
                    continue
                name = f"{topic}/{broker}/{queue_id}"
                is_read = topic in selection.topics or any(one.topic == topic for one in there)
                if not is_read or not selection.takes(topic, broker, queue_id):
                    raise PipelineError(f"option {option} names the queue {name}, which is not read")
                numbers = sorted({one.queue_id for one in found})
                has = f"it has the queues {numbers[0]} to {numbers[-1]}" if numbers else "it has none"
                losses.offsets(name, number, None, None, f"{option} names it, and there is no such queue: {has}")


def _by_time(
    client: WireClient, position: Position, wanted: list[MessageQueue], option: str, ends: QueueEnds
) -> Offsets:
    if position.timestamp is not None:
        times = dict.fromkeys(wanted, position.timestamp)
    else:
        times = _told(position, wanted, option)
    found = at_times(client, times, ends)
    if position.needs_match:
        highs = ends.ask(times)
        without = [queue for queue in wanted if found[queue] >= highs[queue]]
        if without:
            raise PipelineError(
                f"{len(without)} of {len(wanted)} queues, such as {name_of(without[0])}, have no message stored at "
                f"{times[without[0]]} ms or later; set startingOffsetsByTimestampStrategy to latest to begin at the end"
            )
    return found


def at_times(client: WireClient, times: Mapping[MessageQueue, int], ends: QueueEnds) -> Offsets:
    """Return the first message of each queue that was stored at or after its time, within what the queue has.

    Raises:
        PipelineError: brokers do not answer; or the master of a queue, which has told where it ends, is away, and its
            slave, which may lack the message, does not find it among its own.
    """

    def search(some: list[MessageQueue]) -> tuple[dict[MessageQueue, ReportedOffset], Failures]:
        found, failed = client.offsets_by_time({queue: times[queue] for queue in some})
        doubtful = [queue for queue, one in found.items() if not one.is_master and ends.seen[queue].is_master]
        lows, highs = client.min_offsets(doubtful)[0], client.max_offsets(doubtful)[0]
        for queue in doubtful:
            first, end = lows.get(queue), highs.get(queue)
            offset = found[queue].offset
            if first is None or end is None or offset >= end.offset or (first.offset and offset <= first.offset):
                del found[queue]
                failed[queue] = PipelineError("its master is away, and its slave may lack the message of that time")
        return found, failed

    found = offsets_of(ask_until_answered(client, search, times))
    lows, highs = lows_of(client, times), ends.ask(times)
    return {queue: min(max(offset, lows[queue]), highs[queue]) for queue, offset in found.items()}


def lows_of(client: WireClient, queues: Iterable[MessageQueue]) -> Offsets:
    """Return the offset of the oldest message of each queue. It is logged where slaves report it.

    Raises:
        PipelineError: as `ask_until_answered`.
    """
    seen = ask_until_answered(client, client.min_offsets, queues)
    tell_of_slave_lows(seen)
    return offsets_of(seen)


def _told(position: Position, wanted: list[MessageQueue], option: str) -> Offsets:
    found: Offsets = {}
    missing = []
    for queue in wanted:
        number = position.of_queue(queue.topic, queue.broker_name, queue.queue_id)
        if number is None:
            missing.append(name_of(queue))
        else:
            found[queue] = number
    if missing:
        raise PipelineError(
            f"option {option} says nothing about {len(missing)} of {len(wanted)} queues: {', '.join(missing[:10])}; "
            "name them (-2 is earliest, -1 latest)"
        )
    return found


def tell_of_slaves(seen: Mapping[MessageQueue, ReportedOffset]) -> None:
    """Log which queue ends were reported by slaves: messages that these have not copied yet are not read."""
    _tell_of_slaves(seen, "end, and messages that these have not copied yet are read later")


def tell_of_slave_lows(seen: Mapping[MessageQueue, ReportedOffset]) -> None:
    """Log which beginnings of queues were reported by slaves, unless these are offset 0."""
    lows = {queue: one for queue, one in seen.items() if one.offset}
    _tell_of_slaves(lows, "begin, and older messages that only the masters have are not read")


def _tell_of_slaves(seen: Mapping[MessageQueue, ReportedOffset], what: str) -> None:
    away = sorted(queue for queue, one in seen.items() if not one.is_master)
    if away:
        log.warning(
            "the masters of %d queues, such as %s, are away: their slaves report where they %s",
            len(away), name_of(away[0]), what,
        )  # fmt: skip


def incarnation_of(queue: MessageQueue, seen: ReportedOffset) -> int | None:
    """Return the incarnation of a queue's topic. None if a slave, which may lag, was asked, or if the topic is static,
    because its queues belong to several brokers."""
    return seen.incarnation if seen.is_master and not is_mock_broker(queue.broker_name) else None


def offsets_of(seen: Mapping[MessageQueue, ReportedOffset]) -> Offsets:
    """Return the offsets without their sources."""
    return {queue: one.offset for queue, one in seen.items()}
