"""Producers that do not look for the new leader of a DLedger group, as Java's do not for half a minute: they go on
sending to the old one, which gives their messages to the new one.
"""

import asyncio
from dataclasses import dataclass, field

import pytest

from maxq.auth.signature import Credentials
from maxq.codes import LanguageCode, RequestCode, ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import RemotingError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.send import SendMessageRequestHeader
from maxq.protocol.message.message import Message, encode_batch
from maxq.remoting.client import RemotingClient
from maxq.testing.sim_network import LinkSettings
from maxq.testing.sim_rng import SimRng
from tests.integration.access.world import ACL_2, ALICE, ROOT, WRONG, signed
from tests.simulation.dledger.dledger_servers import Server
from tests.simulation.dledger.test_dledger_promises import Group, _until, leads, run
from tests.simulation.servers.sim_server import TOPIC

pytestmark = pytest.mark.usefixtures("quiet")

_TIMEOUT_MS = 3_000


def request(body: bytes, *, code: int = RequestCode.SEND_MESSAGE_V2, remark: str | None = None) -> RemotingCommand:
    """A send as Java's producer encodes it."""
    header = SendMessageRequestHeader(
        "PG", TOPIC, "TBW102", 4, 0, 0, 1, flag=0, properties="WAIT\x01true\x02", reconsume_times=0,
        batch=code == RequestCode.SEND_BATCH_MESSAGE,
    )  # fmt: skip
    return RemotingCommand(code, header.encode_v2(), body, remark, language=int(LanguageCode.JAVA))


@dataclass
class StaleProducer:
    """Sends to one address and asks nobody for another one.

    Attributes:
        failed: codes and errors that its sends ended with.
        longest_ms: of its sends.
    """

    group: Group
    address: str
    acknowledged: list[bytes] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    longest_ms: int = 0

    def __post_init__(self) -> None:
        self._clock = self.group.machine.clock
        with self.group.machine.entered():
            self._client = RemotingClient(NettyClientConfig(), clock=self._clock, rng=SimRng(8))
        self._task = self.group.machine.spawn(self._run())

    async def _run(self) -> None:
        number = 0
        while True:
            body = b"%d" % number
            number += 1
            began_ms = self._clock.monotonic_ms()
            try:
                answer = await self._client.invoke(self.address, request(body), _TIMEOUT_MS)
            except RemotingError as error:
                self.failed.append(str(error))
            else:
                if answer.code == ResponseCode.SUCCESS:
                    self.acknowledged.append(body)
                else:
                    self.failed.append(f"{answer.code} {answer.remark}")
            self.longest_ms = max(self.longest_ms, self._clock.monotonic_ms() - began_ms)
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


def stored(server: Server) -> list[bytes]:
    """The bodies of the queue that the producer sends to, as this member shows them."""
    store = server.broker.store
    found = []
    for offset in range(store.max_offset(TOPIC, 0)):
        message = store.look_message_by_offset(store.queue_units(TOPIC, 0, offset, 1)[0][0])
        assert message is not None
        found.append(bytes(message.body))
    return found


async def hand_over(group: Group) -> Server:
    """The leader hands over to another member, which is master when this returns."""
    old = group.leader
    to = next(server for server in group.brokers if server is not old)
    member = old.member
    assert member is not None
    await old.machine.call(lambda: member.transfer(to.name))
    await _until(lambda: leads(to))
    group.leader = to
    return to


async def led_before(group: Group) -> Server:
    """A member that does not lead and has done so, which is what producers with an old route send to."""
    old = group.leader
    await hand_over(group)
    return old


def address_of(server: Server) -> str:
    return f"{server.machine.address}:10911"


def test_no_send_to_the_old_leader_fails_after_a_hand_over_and_each_is_stored_once() -> None:
    async def scene(group: Group) -> None:
        group.world.network.default_link = LinkSettings(delay_ms=(20, 40))  # sends fall into the hand-over itself
        producer = StaleProducer(group, address_of(group.leader))
        await asyncio.sleep(2)
        for _ in range(2):
            new = await hand_over(group)
            await asyncio.sleep(5)
        await producer.stop()
        assert not producer.failed, producer.failed[:3]
        assert len(producer.acknowledged) > 50
        assert producer.longest_ms < 1000
        bodies = stored(new)
        assert sorted(bodies) == sorted(set(bodies)) and set(producer.acknowledged) <= set(bodies)

    run(scene)


def test_sends_to_a_member_whose_leader_died_wait_for_the_next_one() -> None:
    async def scene(group: Group) -> None:
        follower = await led_before(group)
        producer = StaleProducer(group, address_of(follower))
        await asyncio.sleep(2)
        assert producer.acknowledged
        assert not producer.failed, producer.failed[:3]
        group.leader.machine.kill()
        await _until(lambda: any(leads(server) for server in group.brokers))
        await asyncio.sleep(3)
        await producer.stop()
        assert all("may be stored" in text for text in producer.failed), producer.failed
        assert len(producer.failed) <= 1
        (new,) = [server for server in group.brokers if leads(server)]
        assert set(producer.acknowledged) <= set(stored(new))

    run(scene)


def test_a_send_that_nobody_takes_is_refused_in_time_and_stored_nowhere() -> None:
    async def scene(group: Group) -> None:
        old = await led_before(group)
        others = [server for server in group.brokers if server is not old]
        for server in others:
            server.machine.kill()
        clock = group.machine.clock
        began_ms = clock.monotonic_ms()
        answer = await group.machine.call(lambda: group.client.invoke(address_of(old), request(b"x"), _TIMEOUT_MS))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert answer.remark is not None and "[NOT_MASTER]" in answer.remark
        assert 2_000 < clock.monotonic_ms() - began_ms < _TIMEOUT_MS
        for server in others:
            await server.start()
        await _until(lambda: any(leads(server) for server in group.brokers))
        (new,) = [server for server in group.brokers if leads(server)]
        assert stored(new) == []

    run(scene)


@pytest.mark.parametrize(
    ("language", "remark"), [(LanguageCode.PYTHON, None), (LanguageCode.JAVA, "relayed")], ids=["ours", "passed on"]
)
def test_our_clients_and_what_was_passed_on_once_are_refused_at_once(
    language: LanguageCode, remark: str | None
) -> None:
    async def scene(group: Group) -> None:
        follower = await led_before(group)
        send = request(b"x", remark=remark)
        send.language = int(language)
        began_ms = group.machine.clock.monotonic_ms()
        answer = await group.machine.call(lambda: group.client.invoke(address_of(follower), send, _TIMEOUT_MS))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert group.machine.clock.monotonic_ms() - began_ms < 100

    run(scene)


def test_a_member_that_never_led_refuses_sends_and_one_that_started_again_passes_them_on_for_a_while() -> None:
    async def scene(group: Group) -> None:
        other = next(server for server in group.brokers if server is not group.leader)

        async def send() -> tuple[int, int]:
            began_ms = group.machine.clock.monotonic_ms()
            invoked = group.client.invoke(address_of(other), request(b"x"), _TIMEOUT_MS)
            code = (await group.machine.call(lambda: invoked)).code
            return code, group.machine.clock.monotonic_ms() - began_ms

        code, took_ms = await send()
        assert code == ResponseCode.SERVICE_NOT_AVAILABLE and took_ms < 100
        other.machine.kill()
        await group.send(Message(TOPIC, b"meanwhile"))
        await other.start()
        await asyncio.sleep(5)
        assert (await send())[0] == ResponseCode.SUCCESS
        await asyncio.sleep(20)
        code, took_ms = await send()
        assert code == ResponseCode.SERVICE_NOT_AVAILABLE and took_ms < 100

    run(scene)


def test_batches_and_one_way_sends_are_passed_on() -> None:
    async def scene(group: Group) -> None:
        follower = await led_before(group)
        bodies = [b"a", b"b", b"c"]
        batch = request(encode_batch(Message(TOPIC, body) for body in bodies), code=RequestCode.SEND_BATCH_MESSAGE)
        answer = await group.machine.call(lambda: group.client.invoke(address_of(follower), batch, _TIMEOUT_MS))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await group.machine.call(lambda: group.client.invoke_oneway(address_of(follower), request(b"d")))
        await _until(lambda: stored(group.leader) == [*bodies, b"d"])

    run(scene)


def test_the_leader_judges_the_signature_of_the_producer_and_not_of_the_member_that_passes_it_on() -> None:
    async def scene(group: Group) -> None:
        follower = await led_before(group)
        leader = group.leader

        async def ask(server: Server, code: int, who: Credentials, body: bytes, **ext: str) -> RemotingCommand:
            command = signed(RemotingCommand(code, ext, body), who)
            return await group.machine.call(lambda: group.client.invoke(address_of(server), command, _TIMEOUT_MS))

        async def admit(server: Server) -> None:
            user = b'{"password":"alice-secret","userType":"Normal"}'
            policy = (
                b'{"policies":[{"policyType":"Custom","entries":[{"resource":"Topic:%b","actions":["Pub"],'
                b'"decision":"Allow"}]}]}' % TOPIC.encode()
            )
            for code, body, ext in (
                (RequestCode.AUTH_CREATE_USER, user, {"username": "alice"}),
                (RequestCode.AUTH_CREATE_ACL, policy, {"subject": "User:alice"}),
            ):
                answer = await ask(server, code, ROOT, body, **ext)
                assert answer.code == ResponseCode.SUCCESS, answer.remark

        async def send(who: Credentials) -> int:
            command = signed(request(b"x"), who)
            invoked = group.client.invoke(address_of(follower), command, _TIMEOUT_MS)
            return (await group.machine.call(lambda: invoked)).code

        await admit(follower)
        assert await send(ALICE) == ResponseCode.NO_PERMISSION  # the leader does not know her yet
        assert await send(WRONG) == ResponseCode.NO_PERMISSION
        await admit(leader)
        assert await send(ALICE) == ResponseCode.SUCCESS
        assert stored(leader) == [b"x"]

    run(scene, **ACL_2)


def test_a_leader_that_ends_gracefully_passes_sends_on_until_its_time_is_over() -> None:
    async def scene(group: Group) -> None:
        old = group.leader
        producer = StaleProducer(group, address_of(old))
        await asyncio.sleep(2)
        ending = old.machine.spawn(old.broker.shutdown())
        await asyncio.sleep(25)
        assert not producer.failed, producer.failed[:3]
        assert len(producer.acknowledged) > 800
        await producer.stop()
        await ending
        (new,) = [server for server in group.brokers if server is not old and leads(server)]
        assert set(producer.acknowledged) <= set(stored(new))

    run(scene, enableShutdownGracefully="true", shutdownWaitTimeSeconds="30")
