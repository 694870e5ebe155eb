"""A broker that moves from ACL 1.0 to ACL 2.0 while strangers ask it all the time, from before it listens: there is no
moment in which it is open. The broker is a process of its own."""

import asyncio
import contextlib
from pathlib import Path

from maxq.auth.signature import Credentials
from maxq.codes import RequestCode as Code
from maxq.codes import ResponseCode
from maxq.config.netty_client_config import NettyClientConfig
from maxq.errors import RemotingError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient
from maxq.runtime.files.system import SystemClock, SystemRng
from tests.integration.access.peer_world import HA, BrokerProcess
from tests.integration.access.test_strangers import MALLORY, OWNER, PLAIN_FILE
from tests.integration.access.world import signed

REFUSED = ResponseCode.NO_PERMISSION
ASKED = (
    (None, Code.GET_BROKER_CONFIG), (None, Code.AUTH_LIST_USER), (MALLORY, Code.AUTH_LIST_USER),
    (MALLORY, Code.UPDATE_BROKER_CONFIG), (MALLORY, Code.AUTH_CREATE_USER),
    (Credentials("mallory1", "another-secret"), Code.GET_BROKER_CONFIG),
    (Credentials("admin12", "mallory-secret"), Code.GET_BROKER_CONFIG),
)  # fmt: skip


async def test_there_is_no_moment_in_which_everything_is_open(tmp_path: Path) -> None:
    conf = tmp_path / "home" / "conf"
    conf.mkdir(parents=True)
    (conf / "plain_acl.yml").write_text(PLAIN_FILE)
    broker = BrokerProcess(tmp_path, HA, {"rocketmqHome": str(conf.parent)})
    before = {**broker.settings, "aclEnable": "true", "authenticationEnabled": "false", "authorizationEnabled": "false"}
    after = {**broker.settings, "migrateAuthFromV1Enabled": "true"}
    answers: list[tuple[Credentials | None, int, int]] = []
    is_over = False

    async def ask_all_the_time() -> None:
        client = RemotingClient(NettyClientConfig(), clock=SystemClock(), rng=SystemRng())
        while not is_over:
            for who, code in ASKED:
                command = signed(RemotingCommand(code, {"username": "eve"}, b'{"password":"eve-secret"}'), who)
                with contextlib.suppress(RemotingError):
                    answers.append((who, code, (await client.invoke(broker.address, command, 2_000)).code))
            await asyncio.sleep(0)
        await client.close()

    asking = [asyncio.ensure_future(ask_all_the_time()) for _ in range(4)]
    try:
        for settings in (before, after, after):
            broker.settings = settings
            await broker.start()
            owner = RemotingClient(NettyClientConfig(), clock=SystemClock(), rng=SystemRng())
            command = signed(RemotingCommand(Code.GET_BROKER_CONFIG), OWNER)
            assert (await owner.invoke(broker.address, command, 10_000)).code == 0  # who may, may at once
            await owner.close()
            seen = len(answers)
            async with asyncio.timeout(30):
                while len(answers) < seen + 20 * len(ASKED):  # noqa: ASYNC110  # another process
                    await asyncio.sleep(0.01)
            await broker.stop()
    finally:
        is_over = True
        await asyncio.gather(*asking)
    allowed = {(who, code) for who, code, answer in answers if answer == 0}
    assert allowed == set()
    assert {code for who, code, answer in answers if answer == REFUSED} == {code for _, code in ASKED}
