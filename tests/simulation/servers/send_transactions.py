"""What the story of sends (send_story.py) tells of transactions: two processes of one producer group, and the database
in which local transactions leave their outcome.

One process sends and is killed at times, wherever it is; the other one only answers what brokers ask, and is killed as
well. A broker may ask before the local transaction is executed, meanwhile, and after the process that executes it has
died; who finds no outcome then decides that there is none, and the database keeps that.

What must hold: what the database has as committed is delivered, and nothing else, however often it is asked for; a
local transaction is executed only for a half message that is stored, once, and before its call returns; a call tells
what its listener returned.
"""

import asyncio
from typing import TYPE_CHECKING, Any, Final

from maxq.client.client_config import ProducerConfig
from maxq.client.producer.transaction_producer import TransactionProducer, TransactionSendResult
from maxq.client.results.local_transaction_state import LocalTransactionState as State
from maxq.client.results.send_result import SendStatus
from maxq.errors import MaxQError
from maxq.machine import system_environment
from maxq.protocol.message.message import Message, MessageExt

if TYPE_CHECKING:
    from tests.simulation.servers.send_story import SendStory

GROUP: Final = "G-paying"
#: Brokers ask soon and often, and never give a transaction up.
BROKER_SETTINGS: Final = {
    "transactionTimeOut": "2000", "transactionCheckInterval": "1500", "transactionCheckMax": "100000",
}  # fmt: skip
_MOST_EXECUTION_S: Final = 4.0
_SLACK_S: Final = 0.25
_SETTLE_S: Final = 60.0


class Bank:
    """The database, and the two processes that use it.

    Attributes:
        decided: outcomes, by the number of the message.
        has_ended: the process that sends.
    """

    def __init__(self, story: "SendStory") -> None:
        self._story = story
        self._rng = story.rng.fork("transactions")
        self.decided: dict[int, State] = {}
        self.has_ended = False
        self._executed: set[int] = set()
        self._executing: dict[int, int] = {}  # life of the process that does
        self._life = 0
        self._told: dict[int, TransactionSendResult] = {}

    # --- the processes ---

    async def pay(self) -> None:
        """Send, from one start of the process to its end."""
        story, self._life = self._story, self._life + 1
        producer = self._producer()
        await producer.start()
        rng, tasks = self._rng.fork(f"life {self._life}"), set[asyncio.Task[None]]()
        while not story.is_over:
            await asyncio.sleep(rng.uniform(0, 0.6))
            task = asyncio.ensure_future(self._one(producer, rng.fork(f"payment {len(self._executed)}")))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            task.add_done_callback(story.look_at)
        async with asyncio.timeout(_SETTLE_S):
            while tasks:
                await asyncio.wait(tasks)
        await asyncio.sleep(8)
        message = story.message(rng, "calm")
        call = story.call("a calm transaction", [message], 0)
        await story.await_call(call, self._sent(producer, message))
        if call.error is not None:
            story.fail(f"{call} failed although all is calm: {call.error!r}")
        await producer.shutdown()
        self.has_ended = True

    async def witness(self) -> None:
        """Answer what brokers ask, to the end of the story."""
        async with self._producer() as producer:
            await producer.fetch_publish_message_queues(self._story.topic)
            await producer._sender.instance.introduce()
            await asyncio.Event().wait()

    def _producer(self) -> TransactionProducer:
        config = ProducerConfig(
            namesrv_addr=self._story.name_server_addresses, producer_group=GROUP, send_msg_timeout=1500,
            poll_name_server_interval=5_000, heartbeat_broker_interval=5_000,
        )  # fmt: skip
        return TransactionProducer(config, system_environment(), self)

    async def _one(self, producer: TransactionProducer, rng: Any) -> None:
        story, message = self._story, self._story.message(rng)
        call = story.call("transaction", [message], 0)
        work = asyncio.ensure_future(story.await_call(call, self._sent(producer, message)))
        if rng.chance(0.1):
            await asyncio.sleep(rng.uniform(0, 0.5))
            work.cancel()
        await asyncio.wait([work])
        await work
        took = (call.ended or 0.0) - call.began - story.stood_still(call.began, call.ended or 0.0)
        if not call.is_cancelled and took > 2 * 1.5 + _MOST_EXECUTION_S + 2 * _SLACK_S:
            story.fail(f"{call} took {took:.3f} s: {call.error!r}")

    async def _sent(self, producer: TransactionProducer, message: Message) -> None:
        number, story = self._story.number_of(message), self._story
        result = await producer.send_message_in_transaction(message, number)
        self._told[number] = result
        if result.send_status is not SendStatus.SEND_OK:
            story.marks["a half message was not safe"] += 1
            if number in self._executed:
                story.fail(f"the half message of {number} was not safe, and its transaction was executed")
            self.decided.setdefault(number, State.ROLLBACK_MESSAGE)
        elif number not in self._executed:
            story.fail(f"the transaction of {number} was not executed")
        if result.end_error is not None:
            story.marks["an end could not be told"] += 1
            if not isinstance(result.end_error, MaxQError):
                story.fail(f"the end of {number} could not be told: {result.end_error!r}")

    # --- the listener ---

    async def execute_local_transaction(self, message: Message, arg: Any) -> State | None:
        story, rng = self._story, self._rng
        number = story.number_of(message)
        if number in self._executed or arg != number:
            story.fail(f"the transaction of {number} is executed twice, or with another argument ({arg})")
        self._executed.add(number)
        self._executing[number] = self._life
        if rng.chance(0.3):
            await asyncio.sleep(rng.uniform(0, _MOST_EXECUTION_S))
        del self._executing[number]
        if number in self.decided:  # nobody had found an outcome, and somebody has said so
            story.marks["a transaction was rolled back before it was executed"] += 1
            return self.decided[number]
        if rng.chance(0.1):
            story.marks["a transaction raised"] += 1
            raise ValueError("as scripted")
        state = self.decided[number] = State.COMMIT_MESSAGE if rng.chance(0.6) else State.ROLLBACK_MESSAGE
        story.marks[f"{state.name}, executed"] += 1
        return state if rng.chance(0.8) else rng.choice((None, State.UNKNOW))

    async def check_local_transaction(self, message: MessageExt) -> State | None:
        story, rng = self._story, self._rng
        number = story.number_of(message)
        story.marks["a broker asked"] += 1
        if not story.is_over:
            if rng.chance(0.2):
                await asyncio.sleep(rng.uniform(0, 3))
            if rng.chance(0.1):
                raise ValueError("as scripted")
        if number not in self.decided:
            is_under_way = self._executing.get(number) == self._life and not self.has_ended
            if is_under_way or (not self.has_ended and rng.chance(0.5)):
                return State.UNKNOW
            self.decided[number] = State.ROLLBACK_MESSAGE
            story.marks["a transaction without outcome was rolled back"] += 1
        return self.decided[number]

    # --- the end ---

    @property
    def committed(self) -> set[int]:
        """Return the numbers of what must be delivered."""
        return {number for number, state in self.decided.items() if state is State.COMMIT_MESSAGE}

    def check(self) -> None:
        """Compare what was delivered with the database."""
        story = self._story
        for number in self.committed:
            if not story.stored.get(number):
                story.fail(f"{number} is committed, and was not delivered ({story.call_of[number]})")
        for number, call in story.call_of.items():
            if call.way.endswith("transaction") and story.stored.get(number) and number not in self.committed:
                story.fail(f"{number} was delivered, and is {self.decided.get(number, 'undecided')} ({call})")
        for number, result in self._told.items():
            state = result.local_transaction_state
            if state is not State.UNKNOW and state is not self.decided.get(number):
                story.fail(f"the call of {number} told {state.name}, and it is {self.decided.get(number)}")
