"""Stories of what producers promise; and that they find a producer that breaks a promise."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from maxq.client.instance.request_reply import PendingRequests
from maxq.client.producer import arrow_sends, produce_accumulator, transaction_producer
from maxq.client.producer.many_sends import ManySends
from maxq.client.producer.message_sender import MessageSender
from maxq.client.producer.producer import Producer
from maxq.client.results.local_transaction_state import LocalTransactionState
from maxq.client.results.send_result import SendResult, SendStatus
from maxq.errors import RemoteProtocolError, RemotingConnectError, RemotingSendError, RemotingTimeoutError
from maxq.protocol.message.message import MessageExt
from maxq.protocol.message.message_queue import MessageQueue
from maxq.remoting.connection import Connection
from tests.short_form import long_form
from tests.simulation.campaign import tell
from tests.simulation.told import cases

pytestmark = pytest.mark.usefixtures("quiet")

SEEDS = range(6)
SHORT = (2, 4)

_seen: Counter[str] = Counter()


@pytest.mark.parametrize("seed", cases("send", SHORT, SEEDS))
def test_producers_keep_their_promises(seed: int) -> None:
    outcome = tell(seed, "send")
    _seen.update(outcome.marks)
    assert not outcome.failure, outcome.failure


@pytest.mark.slow
def test_every_kind_of_send_and_fault_happened() -> None:
    """Runs after the stories above, in one process with them."""
    if not _seen:
        pytest.skip("the stories did not run in this process")
    ways = {mark.split(",")[0] for mark in _seen}
    assert {
        "send", "blocking send", "send_async", "send_batch", "send_many", "send_many of a feed", "sends together",
        "send_orderly", "send_oneway", "a call was cancelled", "a broker was killed", "an answer was lost",
        "an answer came twice", "a connection was cut within an answer", "stored in spite of an error", "transaction",
        "a broker asked", "the payer was killed", "request", "a reply came", "send_arrow",
    } <= ways  # fmt: skip


# --- producers that break a promise -----------------------------------------------------------------------------------


def _confident(patch: pytest.MonkeyPatch) -> None:
    """A connection that broke has stored nothing."""
    patch.setattr(Connection, "broken", lambda self: RemotingSendError("it broke", may_be_stored=False))


def _trusting(patch: pytest.MonkeyPatch) -> None:
    """What was not answered was not stored."""
    patch.setattr(RemotingTimeoutError, "may_be_stored", False)


def _forgetful(patch: pytest.MonkeyPatch) -> None:
    """The last try is all that an error tells of."""
    real = MessageSender._last_error

    def outcome(self: MessageSender, *args: Any, **more: Any) -> Exception:
        return real(self, *args, **more)

    patch.setattr(MessageSender, "_outcome", outcome)


def _muddled(patch: pytest.MonkeyPatch) -> None:
    """Results of send_many are in the order in which they came."""
    real = ManySends.run

    async def run(self: ManySends, messages: Any) -> list[SendResult]:
        await real(self, messages)
        return list(self._results.values())

    patch.setattr(ManySends, "run", run)


def _restless(patch: pytest.MonkeyPatch) -> None:
    """A send_many that was cancelled goes on with what failed."""

    async def give_up(self: ManySends) -> None:
        self._keep, self._user_is_told = lambda place, result: None, None

    patch.setattr(ManySends, "_give_up", give_up)


def _stubborn(patch: pytest.MonkeyPatch) -> None:
    """A send goes on although it was cancelled."""
    real = Producer.send

    async def send(self: Producer, *args: Any, **more: Any) -> SendResult:
        return await asyncio.shield(asyncio.ensure_future(real(self, *args, **more)))

    patch.setattr(Producer, "send", send)


def _misplaced(patch: pytest.MonkeyPatch) -> None:
    """All messages of a gathered batch have the place of the first."""
    real = produce_accumulator.split_result

    def split(result: SendResult, count: int) -> list[SendResult]:
        return [one._replace(queue_offset=result.queue_offset) for one in real(result, count)]

    patch.setattr(produce_accumulator, "split_result", split)


def _rash(patch: pytest.MonkeyPatch) -> None:
    """A try that failed in any way is a success somewhere."""
    real = MessageSender.over_tries

    async def over_tries(self: MessageSender, prepared: Any, *args: Any, **more: Any) -> Any:
        try:
            return await real(self, prepared, *args, **more)
        except (RemotingSendError, RemotingConnectError, RemoteProtocolError):
            return SendResult(SendStatus.SEND_OK, prepared.msg_id, MessageQueue(prepared.topic, "broker-1", 0), 0, "0")

    patch.setattr(MessageSender, "over_tries", over_tries)


def _patient(patch: pytest.MonkeyPatch) -> None:
    """Each try has the whole time-out."""
    real = MessageSender.over_tries

    async def over_tries(self: Any, what: Any, one_try: Any, timeout_ms: int, *rest: Any, **more: Any) -> Any:
        more.pop("deadline_ms", None)
        return await real(self, what, one_try, timeout_ms + 700, *rest, **more)

    patch.setattr(MessageSender, "over_tries", over_tries)


def _generous(patch: pytest.MonkeyPatch) -> None:
    """A transaction of which nothing is known is committed."""
    real = transaction_producer.checked_state

    def checked(answer: object) -> LocalTransactionState:
        state = real(answer)
        return LocalTransactionState.COMMIT_MESSAGE if state is LocalTransactionState.UNKNOW else state

    patch.setattr(transaction_producer, "checked_state", checked)


def _mistaken(patch: pytest.MonkeyPatch) -> None:
    """A reply is given to whoever waits longest."""

    def on_reply(self: PendingRequests, message: MessageExt) -> bool:
        for future in self._futures.values():
            if not future.done():
                future.set_result(message)
                return True
        return False

    patch.setattr(PendingRequests, "on_reply", on_reply)


def _optimistic(patch: pytest.MonkeyPatch) -> None:
    """Rows whose request failed are not stored."""
    patch.setattr(arrow_sends, "_may_be_stored", lambda error: False)


@pytest.mark.parametrize(
    "plant",
    [
        _confident,
        *long_form([
            _trusting, _forgetful, _muddled, _restless, _stubborn, _misplaced, _rash, _patient, _generous, _mistaken,
            _optimistic,
        ]),
    ],
)  # fmt: skip
def test_a_broken_promise_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    assert any(tell(seed, "send").failure for seed in range(40)), "no seed finds it"
