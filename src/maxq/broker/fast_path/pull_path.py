"""The batch path of repeated pulls: what a reader asks again and again is checked once and remembered.

A consumer's pulls of one queue differ in offset and opaque only. When the PullMessageProcessor has let one through, it
remembers what the checks found (PullPlans.remember): a PullPlan under the key of the request
(protocol/request_scanners_cy, PULL_KEY_FIELDS). The next pull with that key is answered from the plan, as long as
everything the checks looked at is still the same object; settings, topic and group configs and subscriptions are
replaced on change, never mutated, so identity says it. A pull that finds nothing yet and may wait is parked with its
plan, and answered from it when messages arrive. Only messages that are found are answered here, on a master and on a
slave that may be read; each answer says which broker to ask next (processors/pull_read_rules.py). All other outcomes
(an empty queue, offset moved, cold data, a pending reset, a wait that has ended) are left to the processor, which asks
the store again.

Messages that are in memory and filtered by tags at most are read and sent without making an object for each
(pull_answers_cy.py). Messages that are filtered by properties, or lie further back, are read by the store's slow path.
"""

from maxq.broker.bundles import Clients, Environment, Limits, Messages, Tables
from maxq.broker.fast_path.pull_answers_cy import PullAnswers, PullPlan
from maxq.broker.fast_path.pull_plans import PullPlans
from maxq.broker.longpolling.pull_request_hold_service import HeldPull, PullRequestHoldService, Replay
from maxq.broker.stats import names
from maxq.codes import RequestCode
from maxq.protocol.frame.request_scanners_cy import PullScanner
from maxq.protocol.frame.send_rows import A_END, A_TAKEN, ARRIVAL_WIDTH
from maxq.remoting.batched_reads import BatchedReads
from maxq.remoting.server import Connection
from maxq.remoting.socket_io_cy import untaken
from maxq.store.store_results import GetMessageStatus

_PULL = int(RequestCode.PULL_MESSAGE)
_SHORT_POLLING_FLOOR_MS = 1
_CAME_NOW = -1  # value of `held_since_ms` for a pull that has just arrived


class PullPath:
    """Answers repeated pulls straight from the receive buffer. One per broker."""

    def __init__(
        self,
        env: Environment,
        tables: Tables,
        clients: Clients,
        messages: Messages,
        limits: Limits,
        plans: PullPlans,
        hold_service: PullRequestHoldService,
        replay: Replay,
    ) -> None:
        """`replay` is the processor's function that answers a parked pull, for pulls that this path cannot answer."""
        self._store = messages.store
        self._offsets = tables.offsets
        self._stats = env.stats
        self._clock = env.clock
        self._quotas = limits.quotas
        self._plans = plans
        self._rules = plans.rules
        self._hold_service = hold_service
        self._replay = replay
        self._guard = env.guard
        self._scanner = PullScanner()
        if env.guard is not None:
            self._scanner.expect_signatures()
        self._answers = PullAnswers(env, tables, clients, messages.store, plans.rules)

    def __call__(self, connection: Connection, buffer: bytearray, start: int, end: int) -> int:
        """Answer the leading pulls of buffer[start:end] whose checks are cached. Returns the position behind the last
        one."""
        scanner, quotas = self._scanner, self._quotas
        position = start
        while position < end:
            behind = scanner.scan(buffer, position, end)
            if behind == position or scanner.binary or connection.excluded_codes:
                break
            plan = self._plans.get(scanner.key)
            if plan is None or not self._answers.holds(plan):
                break
            is_plain = scanner.code == _PULL and self._guard is None and not quotas.limits_pulls
            if not (is_plain or self._may(connection, plan)):
                break
            if not self._take(connection, plan, buffer, position, behind):
                break
            position = behind
            if connection.is_held_back:
                return position
        if start == 0 and position == end:
            connection.note_fast_path_arrival()
        return position

    def take(self, arrivals: BatchedReads) -> None:
        """Answer the pulls in the rest of all arrivals of a turn, as `__call__` does for one arrival."""
        table, connections = arrivals.table, arrivals.connections
        for number in untaken(table, len(connections)):
            row = number * ARRIVAL_WIDTH
            connection = connections[number]
            if not connection.is_held_back:
                table[row + A_TAKEN] = self(connection, arrivals.buffer, table[row + A_TAKEN], table[row + A_END])

    def _may(self, connection: Connection, plan: PullPlan) -> bool:
        """Return whether the guard has allowed such a pull on this connection before, this one is signed by the same
        user, and that user has no read quota."""
        scanner = self._scanner
        if scanner.code == RequestCode.LITE_PULL_MESSAGE and not plan.broker.lite_pull_message_enable:
            return False
        if self._guard is not None:
            group, topic, _ = scanner.key.split(b"\0", 2)
            if not self._guard.session(connection).admits(scanner.code, scanner, group, topic):
                return False
        return not (self._quotas.limits_pulls and self._quotas.is_limited_reader(plan.group_name, connection))

    def _take(self, connection: Connection, plan: PullPlan, buffer: bytearray, start: int, end: int) -> bool:
        """Answer the scanned pull or park it. Returns False if the processor must handle it."""
        scanner, answers = self._scanner, self._answers
        if plan.commits and scanner.commit_offset > scanner.queue_offset:  # may be behind the end of the queue
            return False
        if plan.wanted is None:
            if answers.answer(connection, plan, scanner.queue_offset, scanner.commit_offset, scanner.opaque, _CAME_NOW):
                return True
            if answers.waits:
                return self._park(connection, plan, buffer, start, end)
        return self._read_further(connection, plan)

    def _read_further(self, connection: Connection, plan: PullPlan) -> bool:
        """Answer with the result of MessageStore.get_message."""
        scanner = self._scanner
        began_ms = self._clock.monotonic_ms()
        result = self._store.get_message(
            plan.group_name,
            plan.topic_name,
            plan.queue_id,
            scanner.queue_offset,
            plan.max_msg_nums,
            plan.subscription,
            max_bytes=plan.max_msg_bytes,
            wanted=plan.wanted,
            may_wait=True,
        )
        if result.status is not GetMessageStatus.FOUND or result.cold:
            return False
        if plan.commits:
            self._commit(connection, plan)
        if result.filtered_count:
            key = f"{plan.topic_name}@{plan.group_name}"
            self._stats.add(names.GROUP_FILTERED_NUMS, key, result.filtered_count)
        head = self._answers.count(
            connection, plan, scanner.opaque, began_ms, _CAME_NOW, result.message_count, result.total_bytes,
            result.next_begin_offset, result.min_offset, result.max_offset, result.last_physical_offset,
            result.suggest_pulling_from_slave,
        )  # fmt: skip
        connection.write([head, *result.buffers])
        return True

    def _commit(self, connection: Connection, plan: PullPlan) -> None:
        offset = self._scanner.commit_offset
        self._offsets.commit_offset(connection.remote_address, plan.group_name, plan.topic_name, plan.queue_id, offset)

    # ---- waiting ----------------------------------------------------------------------------------------------

    def _park(self, connection: Connection, plan: PullPlan, buffer: bytearray, start: int, end: int) -> bool:
        """Park a pull that finds nothing yet. Returns False if it may not wait, or comes from a slave."""
        broker = plan.broker
        if (
            not plan.suspends
            or self._rules.is_slave
            or self._hold_service.held_count >= broker.pull_thread_pool_queue_capacity
        ):
            return False
        self._store.stats.count_get(0)
        if plan.commits:
            self._commit(connection, plan)
        scanner, now_ms = self._scanner, self._clock.monotonic_ms()
        wait_ms = plan.suspend_ms if broker.long_polling_enable else broker.short_polling_time_mills
        self._hold_service.hold(
            HeldPull(
                connection,
                None,
                None,
                (plan.topic_name, plan.queue_id),
                scanner.queue_offset,
                scanner.queue_offset,
                now_ms + max(wait_ms, _SHORT_POLLING_FLOOR_MS),
                self.replay,
                now_ms,
                frame=bytes(memoryview(buffer)[start + 4 : end]),
                plan=plan,
                opaque=scanner.opaque,
            )
        )
        return True

    def replay(self, held: HeldPull, last: bool) -> bool:
        """Try again to answer a parked pull; returns True if it was answered."""
        plan = held.plan
        if plan is not None and not last and not self._quotas.limits_pulls and self._answers.holds(plan):
            if self._answers.answer(held.connection, plan, held.offset, 0, held.opaque, held.began_ms):
                return True
            if self._answers.waits:
                return False
        return self._replay(held, last)
