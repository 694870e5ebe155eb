"""A broker or name server with access control, and requests to it signed by whom one likes."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from maxq.auth.acl_client_rpc_hook import AclClientRPCHook
from maxq.auth.signature import Credentials
from maxq.config.namesrv_config import NamesrvConfig
from maxq.config.settings import NamesrvSettings
from maxq.namesrv.controller import NamesrvController
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection
from maxq.runtime.files.system import SystemClock, SystemDisk, SystemRng
from tests.integration.broker.harness import RunningBroker

ROOT = Credentials("root", "root-secret")
INNER = Credentials("inner", "inner-secret")
ALICE = Credentials("alice", "alice-secret")
WRONG = Credentials("alice", "not-her-secret")
EVE = Credentials("eve", "eve-secret")

ACL_2 = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
}


def signed(command: RemotingCommand, credentials: Credentials | None) -> RemotingCommand:
    """The request, signed by them."""
    if credentials is not None:
        AclClientRPCHook(credentials).do_before_request("", command)
    return command


class GuardedBroker(RunningBroker):
    """A broker with ACL 2.0, unless the settings say otherwise, and no name server."""

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(folder, ACL_2 if settings is None else settings)

    async def ask(
        self,
        code: int,
        credentials: Credentials | None = ROOT,
        body: bytes | None = None,
        **ext: str,
    ) -> RemotingCommand:
        return await self.invoke(signed(RemotingCommand(code, dict(ext), body), credentials))

    async def make_alice(self) -> None:
        """A user without policies."""
        answer = await self.ask(3001, ROOT, b'{"password":"alice-secret","userType":"Normal"}', username="alice")
        assert answer.code == 0, answer.remark

    async def allow_alice(self, resource: str, *actions: str, decision: str = "Allow") -> None:
        """One more entry of her policies."""
        text = ",".join(f'"{action}"' for action in actions)
        entry = f'{{"resource":"{resource}","actions":[{text}],"decision":"{decision}"}}'
        body = f'{{"policies":[{{"policyType":"Custom","entries":[{entry}]}}]}}'
        answer = await self.ask(3006, ROOT, body.encode(), subject="User:alice")
        assert answer.code == 0, answer.remark


class SeenByGuard:
    """Codes of the requests that came to the guard, which those on the batch paths do not."""

    def __init__(self, broker: GuardedBroker) -> None:
        server = broker.controller.server
        self._guard = server.guard
        self.codes: list[int] = []
        server.guard = self

    def __call__(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        self.codes.append(command.code)
        assert self._guard is not None
        return self._guard(connection, command)


class GuardedNamesrv:
    """A name server with access control."""

    def __init__(self, folder: Path, given: dict[str, str] | None = None) -> None:
        own = {"bindAddress": "127.0.0.1", "listenPort": "0", "kvConfigPath": str(folder / "kv.json")}
        settings, _ = NamesrvSettings.from_properties({**own, **(given or ACL_2)}, source="test")
        assert isinstance(settings.namesrv, NamesrvConfig)
        self.controller = NamesrvController(settings, disk=SystemDisk(), clock=SystemClock(), rng=SystemRng())

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.controller.port}"


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until it says True."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110  # files are looked at by time
            await asyncio.sleep(0.01)
