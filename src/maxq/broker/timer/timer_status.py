"""Status of a timer for operators: why a message waits, and the timer's part of GET_BROKER_RUNTIME_INFO."""

from maxq.broker.timer.timer_service import TimerService
from maxq.config.settings import BrokerSettings
from maxq.runtime.interfaces import Clock
from maxq.store.timer.timer_log import TimerUnit


class TimerStatus:
    """Status of one timer service; read-only."""

    def __init__(self, service: TimerService, settings: BrokerSettings, clock: Clock) -> None:
        self._service = service
        self._settings = settings
        self._clock = clock

    def why_late(self, unit: TimerUnit, is_late: bool) -> str:
        """Return why a message was not delivered yet; empty if it is not late."""
        service, config = self._service, self._settings.store
        failure = service.failures.get(unit.physical_offset)
        if failure is not None:
            return f"could not be delivered {failure.times} times, it is tried again: {failure.reason}"
        if not is_late:
            return ""
        if not service.is_dequeuing:
            return "this broker is not the active one of its group: the master, or who acts for it, delivers"
        if config.timer_stop_dequeue:
            return "timerStopDequeue is true"
        if not service.may_dequeue():
            return f"disappearTimeAfterStart is {config.disappear_time_after_start} ms"
        if service.closed:
            return f"nothing can be stored: {service.closed}"
        behind_ms = self._clock.wall_ms() - service.timer.read_time_ms
        return f"the timer is {behind_ms} ms behind, {service.timer.pending} messages wait"

    def why_unread(self) -> str:
        """Return why messages are in the topic and not in the wheel."""
        if self._settings.store.timer_stop_enqueue:
            return "timerStopEnqueue is true"
        if not self._service.may_enqueue():
            return "this broker's wheel is as far as that of the broker that delivers"
        return f"the wheel is {self._unread()} messages behind"

    def _unread(self) -> int:
        return self._service.timer.topic.unread

    def runtime_info(self) -> dict[str, str]:
        """Return the runtime info; empty while no timer is loaded."""
        service = self._service
        if not service.is_loaded:
            return {}
        read_behind_ms = max(0, self._clock.wall_ms() - service.timer.read_time_ms - service.timer.precision_ms)
        enqueued, dequeued = service.checkpoints.rates
        return {
            "timerReadBehind": str(read_behind_ms // 1000),
            "timerOffsetBehind": str(self._unread()),
            "timerCongestNum": str(service.timer.pending),
            "timerEnqueueTps": f"{enqueued:.1f}",
            "timerDequeueTps": f"{dequeued:.1f}",
        }
