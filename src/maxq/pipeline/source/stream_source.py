"""A topic as a stream, without Spark: what each trigger reads, and what is remembered between them.

Everything that a restart needs is in the offsets (offsets.py), which Spark keeps. Its other state is only open
connections, and what was logged.

    a queue or broker is not there     its offset stays as it is; the stream goes on with the others, and with this one
                                       when it is back
    a queue appears                    it is read from its oldest message
    the options do not select it       an error, or with failOnDataLoss=false forgotten: its checkpoint is another's
    its topic was deleted              an error, or with failOnDataLoss=false forgotten; if it was made again its queues
                                       are read from their oldest message
    a queue ends before its offset     the master lost the end of its log, or a Java broker's topic was made again: an
                                       error, or with failOnDataLoss=false the queue is read from its start
"""

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final

from maxq.errors import BrokerError, PipelineError, RemotingError
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.records.losses import Losses
from maxq.pipeline.source.offsets import (
    Incarnations,
    Offsets,
    OffsetsJson,
    firsts_of,
    from_json,
    incarnations_of,
    is_same_topic,
    limit_rows,
    ranges_between,
    to_json,
)
from maxq.pipeline.source.positions import (
    QueueEnds,
    ask_until_answered,
    check_named,
    incarnation_of,
    lows_of,
    name_of,
    offsets_of,
    queues_there,
    resolve,
    selected_queues,
    tell_of_slave_lows,
    tell_of_slaves,
)
from maxq.pipeline.source.scan import ScanPartition, partitions
from maxq.pipeline.wire.wire_client import TOOLS_GROUP, ReportedOffset, WireClient
from maxq.protocol.body.static_topic import is_mock_broker
from maxq.protocol.message.message_queue import MessageQueue

log: Final = logging.getLogger(__name__)

_PAUSE_SECONDS: Final = 0.2
_ROUTE_AGE_MS: Final = 5_000  # age at which a route is fetched again, so that new queues are found


class TopicStream:
    """One streaming read. Its methods are those of Spark's stream readers, with plain values."""

    def __init__(self, options: ReadOptions, client: WireClient | None = None) -> None:
        self._options = options
        self._client = client or WireClient(options.connection, route_age_ms=_ROUTE_AGE_MS)
        self._initial: OffsetsJson | None = None
        # end offsets of a query with Trigger.AvailableNow
        self._target: dict[MessageQueue, ReportedOffset] | None = None
        self._seen: Offsets = {}  # the newest end offsets
        self._away: set[MessageQueue] = set()
        self._last_trigger_ms = self._client.clock.monotonic_ms()
        self._introduced: set[MessageQueue] = set()
        self._committed: Offsets = {}  # offsets that were last committed for the group
        self._losses = Losses(fail=options.fail_on_data_loss)

    # --- offsets -----------------------------------------------------------------------------------------------------

    def initial_offset(self) -> OffsetsJson:
        """Return where a new query starts. Spark keeps it nowhere: it asks before it plans the first trigger, before it
        runs it, and again when a query is restarted whose first trigger did not finish. `latest_offset` notes it.

        Raises:
            PipelineError: a topic that was named is not there, or brokers do not answer.
        """
        if self._initial is not None:
            return self._initial
        starting, selection = self._options.starting, self._options.selection
        queues = selected_queues(self._client, selection)
        check_named(starting, selection, queues, "startingOffsets", self._losses)
        ends = QueueEnds(self._client, queues)
        offsets = resolve(self._client, starting, queues, "startingOffsets", self._losses, ends)
        self._losses.tell()
        self._committed = dict(offsets)  # nothing has been processed yet, so nothing is committed for the group
        # the target is older than these offsets: messages that came since are behind the start, and are not lost
        if self._target is not None:
            for queue in self._target.keys() & offsets.keys():
                one = self._target[queue]
                self._target[queue] = one._replace(offset=max(one.offset, offsets[queue]))
            self._seen = offsets_of(self._target)
        self._initial = to_json(offsets, self._incarnations(ends.seen, ()))
        return self._initial

    def prepare_for_available_now(self) -> None:
        """Limit this query to what exists at this moment.

        Raises:
            PipelineError: a broker does not tell within rocketmq.brokerWait.
        """
        queues = queues_there(self._client, self._options.selection)
        self._target = ask_until_answered(self._client, self._client.max_offsets, queues)
        tell_of_slaves(self._target)
        self._seen = offsets_of(self._target)

    def latest_offset(self, start: Mapping[str, Any], *, limited: bool) -> OffsetsJson:
        """Return where this trigger ends.

        Args:
            start: where it starts.
            limited: as far as the options allow per trigger; else everything.

        Raises:
            DataLossError: a queue ends before its offset in `start`, or its topic was deleted, perhaps made again, and
                that is to be an error.
            PipelineError: of Trigger.AvailableNow: no name server comes to know a topic of the stream within
                rocketmq.brokerWait.
        """
        is_first = start == self._initial
        self.commit(start)  # Spark commits a trigger when the next one begins, and not after the last one of a query
        before = self._selected(from_json(start))
        if self._target is not None:
            self._await_topics(before)
        seen = self._ask_ends(before) if self._target is None else self._target
        if self._target is not None:
            self._tell_away(dict.fromkeys(before.keys() - seen.keys(), "it was in no route when the query began"))
        now = self._incarnations(seen, before)
        begun = self._of_topics_that_are_there(before, incarnations_of(start), now, seen)
        incarnations = incarnations_of(start) | now
        first = dict(begun) | self._lows(queue for queue in seen if queue not in begun)
        ends = dict(begun)
        for queue, one in seen.items():
            if queue in first:  # otherwise its oldest message is not known yet: the next trigger asks again
                ends[queue] = self._checked(queue, first[queue], one)
                if ends[queue] < first[queue]:
                    first[queue] = 0
        self._losses.tell()
        if limited:
            if self._waits_for_more(sum(ends[queue] - first[queue] for queue in ends)):
                return _unless_equal(start, to_json(begun, incarnations, begun if is_first else None))
            ends = self._limited(first, ends)
        if any(ends[queue] != first[queue] for queue in ends):
            self._last_trigger_ms = self._client.clock.monotonic_ms()
        new = {queue: first[queue] for queue in ends if is_first or queue not in begun}
        return _unless_equal(start, to_json(ends, incarnations, new))

    def _selected(self, before: Offsets) -> Offsets:
        """Return the offsets of the queues that the query's options select. The others belong to a query that had other
        options: their unread messages are lost to this query."""
        selection = self._options.selection
        left: Offsets = {}
        for queue, offset in before.items():
            if selection.names(queue.topic) and selection.takes(queue.topic, queue.broker_name, queue.queue_id):
                left[queue] = offset
            else:
                reason = "the checkpoint has it, and the query's options do not select it any more"
                self._losses.offsets(name_of(queue), offset, None, None, reason)
        return left

    def _await_topics(self, before: Offsets) -> None:
        """Wait until the end of this query can name all topics of the stream. A name server that was restarted, or has
        dropped their brokers, knows none of them, and the query would end with nothing read."""
        deadline_ms = self._client.clock.monotonic_ms() + self._options.connection.broker_wait_ms
        while unknown := self._unknown(before):
            if self._client.clock.monotonic_ms() >= deadline_ms:
                raise PipelineError(
                    f"{len(unknown)} queues, such as {name_of(unknown[0])}, can not be read: no name server knows the "
                    f"topic ({self._options.connection.namesrv}), and its broker does not say that it was deleted"
                )
            time.sleep(_PAUSE_SECONDS)
            self._client.forget_routes()
            self.prepare_for_available_now()

    def _unknown(self, before: Offsets) -> list[MessageQueue]:
        """Return the queues of topics that are not in `_target`, and that are in no route yet or have appeared
        since."""
        assert self._target is not None, "asked by the caller"
        selection, there = self._options.selection, {queue.topic for queue in self._target}
        found: list[MessageQueue] = []
        for queue in sorted(before):
            if queue.topic in there:
                continue
            route = self._client.route(queue.topic)
            if route is None:
                is_unknown = not self._client.was_deleted(queue.topic, queue.broker_name)
            else:
                is_unknown = any(selection.takes(one.topic, one.broker_name, one.queue_id) for one in route.queues)
            if is_unknown:
                found.append(queue)
        return found

    def _of_topics_that_are_there(
        self, before: Offsets, then: Incarnations, now: Incarnations, seen: Mapping[MessageQueue, ReportedOffset]
    ) -> Offsets:
        """Return the offsets of a stream without those of deleted topics, whether they were made again or not: their
        queues are read from the new beginning, if there is one.

        Args:
            then, now: what brokers told with the offsets, and what they tell now.
        """
        left: Offsets = {}
        for queue, offset in sorted(before.items()):
            key = queue.topic, queue.broker_name
            available = (0, seen[queue].offset) if queue in seen else None
            if not is_same_topic(queue, then, then | now):
                reason = "the topic was deleted and made again; the unread messages of the deleted one are lost"
            elif queue not in seen and self._client.was_deleted(*key):
                reason = "the topic was deleted; its unread messages are lost"
            else:
                left[queue] = offset
                continue
            self._losses.offsets(name_of(queue), offset, None, available, reason)
        return left

    def _ask_ends(self, begun: Offsets) -> dict[MessageQueue, ReportedOffset]:
        """Ask for the ends of the existing queues; the result is empty while no name server has ever answered."""
        try:
            queues = {*self._client.find_queues(self._options.selection)}
            seen, failed = self._client.max_offsets(sorted(queues))
        except (RemotingError, BrokerError) as error:
            self._tell_away(dict.fromkeys(begun, error))
            return {}
        away = (begun.keys() | queues) - seen.keys()
        self._tell_away({queue: failed.get(queue, "it is in no route") for queue in away})
        self._seen |= offsets_of(seen)
        return seen

    def _checked(self, queue: MessageQueue, before: int, seen: ReportedOffset) -> int:
        end = seen.offset
        if end >= before or not seen.is_master:  # a slave may lag
            return max(end, before)
        reason = (
            "the topic was made again, or the broker lost the end of its log "
            "(with failOnDataLoss=false the queue is read from its start)"
        )
        self._losses.offsets(name_of(queue), before, None, (0, end), reason)
        return end

    def _tell_away(self, away: Mapping[MessageQueue, object]) -> None:
        new = away.keys() - self._away
        if new:
            one = min(new)
            log.warning("%d queues cannot be reached, such as %s: %s; their offsets stay", len(new), one, away[one])
        back = self._away - away.keys()
        if back:
            log.warning("%d queues are back, such as %s", len(back), min(back))
        self._away = set(away)

    def _lows(self, new: Iterable[MessageQueue]) -> Offsets:
        """Return the first offsets of queues that did not exist before. Only the end of Trigger.AvailableNow has to
        name them all; else the next trigger asks again."""
        queues = sorted(new)
        if self._target is not None:
            return lows_of(self._client, queues)
        seen = self._client.min_offsets(queues)[0] if queues else {}
        tell_of_slave_lows(seen)
        return offsets_of(seen)

    def _incarnations(
        self, seen: Mapping[MessageQueue, ReportedOffset], before: Iterable[MessageQueue]
    ) -> Incarnations:
        """Return the incarnations of the topics whose brokers tell them; those of static topics are asked for. Slaves,
        which may lag, are believed about topics of which no queue was known `before`: it is theirs that is read."""
        static = {queue.topic for queue in seen if is_mock_broker(queue.broker_name)}
        asked = {(topic, broker): n for topic in static for broker, n in self._client.incarnations(topic).items()}
        known = {(queue.topic, queue.broker_name) for queue in before}
        of_slaves = {
            key: one.incarnation
            for queue, one in seen.items()
            if (key := (queue.topic, queue.broker_name)) not in known and queue.topic not in static
        }
        of_masters = {
            (queue.topic, queue.broker_name): number
            for queue, one in seen.items()
            if (number := incarnation_of(queue, one)) is not None
        }
        return asked | of_slaves | of_masters

    # --- admission ---------------------------------------------------------------------------------------------------

    def _waits_for_more(self, rows: int) -> bool:
        """Return whether `rows` are too few to begin (minOffsetsPerTrigger) and maxTriggerDelay is not over."""
        lowest = self._options.min_offsets_per_trigger
        if lowest is None or rows >= lowest or self._target is not None:
            return False
        return self._client.clock.monotonic_ms() - self._last_trigger_ms < self._options.max_trigger_delay_ms

    def _limited(self, start: Offsets, ends: Offsets) -> Offsets:
        options = self._options
        if options.max_offsets_per_trigger is not None:
            ends = limit_rows(start, ends, options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            ends = self._limited_by_bytes(start, ends, options.max_bytes_per_trigger)
        return ends

    def _limited_by_bytes(self, start: Offsets, ends: Offsets, limit: int) -> Offsets:
        """Limit the ends by bytes: each queue gets bytes in proportion to its rows, and brokers compute the offsets."""
        sizes = {queue: ends[queue] - start.get(queue, 0) for queue in ends if ends[queue] > start.get(queue, 0)}
        total = sum(sizes.values())
        found = dict(ends)
        reached = {queue: start.get(queue, 0) for queue in sizes}
        left = {queue: max(1, limit * size // total) for queue, size in sizes.items()}
        while left:
            asked = {queue: (reached[queue], budget) for queue, budget in left.items()}
            answers, _ = self._client.offsets_within(self._options.group_id or TOOLS_GROUP, asked)
            remaining: dict[MessageQueue, int] = {}
            for queue in left:
                # the broker gave no answer: read to the end, and let the tasks report the cause
                if queue not in answers:
                    reached[queue] = ends[queue]
                    continue
                following, size = answers[queue]
                average = size // max(1, following - reached[queue])
                reached[queue] = min(following, ends[queue])
                if reached[queue] < ends[queue] and left[queue] - size > average:
                    remaining[queue] = left[queue] - size
            left = remaining
        return found | reached

    # --- what Spark asks besides -------------------------------------------------------------------------------------

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[ScanPartition]:
        """Return the partitions of a trigger, which are the same for the same offsets."""
        if start == end:
            return []
        begun, ends = from_json(start), from_json(end)
        then, now = incarnations_of(start), incarnations_of(end)
        begun = {queue: offset for queue, offset in begun.items() if is_same_topic(queue, then, now)}
        begun |= firsts_of(end)  # the start of a first trigger may be later than it was when the trigger was planned
        new = [queue for queue in ends if queue not in begun and ends[queue] > 0]
        if new:  # a checkpoint of an earlier version does not have the first offsets
            lows = ask_until_answered(self._client, self._client.min_offsets, new)
            begun |= {queue: one.offset for queue, one in lows.items()}
        brokers = {queue.broker_name for queue in ends}
        return partitions(self._client, ranges_between(begun, ends, now), self._options, brokers)

    def report_latest(self) -> OffsetsJson:
        """Return the newest ends that were seen, for progress reports."""
        return to_json(self._seen)

    def commit(self, end: Mapping[str, Any]) -> None:
        """Set the group's offsets to `end`, because everything before it was processed, if there is a group and they
        are new. A failure is logged: the next trigger commits again, and a restart goes by the checkpoint."""
        group = self._options.group_id
        if group is None:
            return
        offsets = from_json(end)
        if offsets == self._committed:
            return
        new = offsets.keys() - self._introduced
        if new:
            self._client.introduce(group, new)
            self._introduced |= new
        failed = self._client.commit(group, offsets)
        if failed:
            queue, error = next(iter(failed.items()))
            log.warning("offsets of %d queues, such as %s, were not committed: %s", len(failed), queue, error)
        else:
            self._committed = dict(offsets)

    def stop(self) -> None:
        """Close the connections of a query that has ended."""
        self._client.close()


def _unless_equal(start: Mapping[str, Any], end: OffsetsJson) -> OffsetsJson:
    """Return `end`, or `start` if only the note of where its queues began is missing in `end`: Spark compares the texts
    to find out whether there is something to read."""
    plain = to_json(from_json(start), incarnations_of(start))
    return {topic: dict(brokers) for topic, brokers in start.items()} if plain == end else end
