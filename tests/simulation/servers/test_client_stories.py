"""Stories of what clients promise; and that they find a client that breaks a promise."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from maxq.broker.processors.clients.consumer_manage import ConsumerManageProcessor
from maxq.client.consumer import listener_caller
from maxq.client.consumer.held.process_queue import ProcessQueue
from maxq.client.consumer.lite_pull_consumer import LitePullConsumer
from maxq.client.consumer.offset_store import RemoteBrokerOffsetStore
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.message.message_queue import MessageQueue
from tests.short_form import long_form
from tests.simulation.campaign import tell
from tests.simulation.told import cases

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = range(7)
SHORT = (0, 3)

_seen: Counter[str] = Counter()


@pytest.mark.parametrize("seed", cases("client", SHORT, SEEDS))
def test_clients_keep_their_promises(seed: int) -> None:
    outcome = tell(seed, "client")
    _seen.update(outcome.marks)
    assert not outcome.failure, outcome.failure


@pytest.mark.slow
def test_every_kind_of_end_happened() -> None:
    """Runs after the stories above, in one process with them."""
    if not _seen:
        pytest.skip("the stories did not run in this process")
    assert {"a member ended in order", "a consumer was started again", "a listener failed"} <= set(_seen)
    assert len({mark for mark in _seen if mark.startswith("a member ended")}) > 1


# --- clients that break a promise ---


def _forgetful(patch: pytest.MonkeyPatch) -> None:
    """A shutdown commits nothing."""

    async def persist_all(self: RemoteBrokerOffsetStore, queues: object, *, certain: bool = False) -> None: ...

    patch.setattr(RemoteBrokerOffsetStore, "persist_all", persist_all)


def _hasty(patch: pytest.MonkeyPatch) -> None:
    """What was given out counts as done, whoever has failed with it."""
    real = LitePullConsumer.shutdown

    async def shutdown(self: LitePullConsumer, *, is_finished: bool = True) -> None:
        await real(self)

    patch.setattr(LitePullConsumer, "shutdown", shutdown)
    patch.setattr(LitePullConsumer, "_has_failed", lambda self, owner: False)


def _skipping(patch: pytest.MonkeyPatch) -> None:
    """The last one done is committed, whatever is open before it."""
    real = ProcessQueue.remove_messages

    def remove(self: ProcessQueue, messages: list[Any], now_ms: int) -> int:
        return max(real(self, messages, now_ms), messages[-1].queue_offset + 1) if messages else -1

    patch.setattr(ProcessQueue, "remove_messages", remove)


def _mortal(patch: pytest.MonkeyPatch) -> None:
    """A worker ends with what a listener raises."""
    patch.setattr(listener_caller, "_is_for_us", lambda error: isinstance(error, asyncio.CancelledError | SystemExit))


def _unsettled(patch: pytest.MonkeyPatch) -> None:
    """Where a new group begins is not committed."""

    async def begin(self: RemoteBrokerOffsetStore, queue: MessageQueue, offset: int) -> int:
        self.update(queue, offset, increase_only=False)
        return offset

    patch.setattr(RemoteBrokerOffsetStore, "begin", begin)


def _volatile(patch: pytest.MonkeyPatch) -> None:
    """Where a new group begins is not on the disk when its member hears that it is committed."""

    async def begun(self: ConsumerManageProcessor, request: RemotingCommand) -> RemotingCommand:
        return request.reply()

    patch.setattr(ConsumerManageProcessor, "_begun", begun)


@pytest.mark.parametrize(
    ("plant", "seeds"),
    [
        (_forgetful, range(0, 140, 7)),
        *long_form(
            [
                (_hasty, range(3, 140, 7)),
                (_skipping, range(0, 140, 7)),
                (_mortal, range(0, 140, 7)),
                (_unsettled, range(85, 140)),
                (_volatile, range(149, 200)),
            ]
        ),
    ],
)
def test_a_broken_promise_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(_breaks(seed) for seed in seeds), "no seed finds it"


def _breaks(seed: int) -> bool:
    try:
        return bool(tell(seed, "client").failure)
    except SystemExit:
        return True
