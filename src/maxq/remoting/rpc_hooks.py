"""RPC hooks: what an application has called around every request of its clients, those of brokers to it included.

A hook may add ext fields before a request goes out (that is how credentials of one's own travel), and sees each answer.
An exception that it raises before a request reaches the caller, and nothing is sent.

Source: apache/rocketmq remoting/RPCHook.java; remoting/netty/{NettyRemotingClient,NettyRemotingAbstract}.java.
"""

import inspect
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Protocol

from maxq.config.netty_client_config import NettyClientConfig
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.client import Connection, Processor, RemotingClient
from maxq.remoting.tls.contexts import ClientTls
from maxq.runtime.interfaces import Clock, Rng


class RPCHook(Protocol):
    """Called around every request, on the client's event loop. It must not block."""

    def do_before_request(self, address: str, request: RemotingCommand) -> None:
        """Called before `request` is sent to `address`, or before a request that came from there is answered."""
        ...

    def do_after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """Called when a request was answered. `response` is None for a broker's request that has no answer. Not called
        after a one-way request of this client."""
        ...


class NamespaceRPCHook:
    """Adds the namespace of its names to every request of a client (remoting/rpchook/NamespaceRpcHook.java).

    Args:
        namespace: as Java's `namespaceV2`.
    """

    def __init__(self, namespace: str) -> None:
        self._fields = {"nsd": "true", "ns": namespace}

    def do_before_request(self, address: str, request: RemotingCommand) -> None:
        request.ext.update(self._fields)

    def do_after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """Do nothing: only requests carry the namespace."""


class HookedRemotingClient(RemotingClient):
    """A RemotingClient whose requests pass hooks, in the order in which they are given."""

    changes_requests = True

    def __init__(
        self,
        config: NettyClientConfig,
        hooks: Sequence[RPCHook],
        *,
        clock: Clock,
        rng: Rng,
        tls: ClientTls | None = None,
    ) -> None:
        super().__init__(config, clock=clock, rng=rng, tls=tls)
        self._hooks = tuple(hooks)

    def before(self, address: str, request: RemotingCommand) -> None:
        for hook in self._hooks:
            hook.do_before_request(address, request)

    def after(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        for hook in self._hooks:
            hook.do_after_response(address, request, response)

    async def invoke(self, address: str, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.before(address, command)
        response = await super().invoke(address, command, timeout_ms)
        self.after(address, command, response)
        return response

    async def invoke_oneway(self, address: str, command: RemotingCommand, timeout_ms: int = 3000) -> None:
        self.before(address, command)
        await super().invoke_oneway(address, command, timeout_ms)

    def send_oneway(self, connection: Connection, command: RemotingCommand) -> None:
        self.before(connection.remote_address, command)
        super().send_oneway(connection, command)

    def register(self, code: int, processor: Processor) -> None:
        super().register(code, partial(self._answered, processor))

    def _answered(
        self, processor: Processor, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Awaitable[RemotingCommand | None] | None:
        self.before(connection.remote_address, request)
        outcome = processor(connection, request)
        if inspect.isawaitable(outcome):
            return self._answered_later(outcome, connection.remote_address, request)
        self.after(connection.remote_address, request, outcome)
        return outcome

    async def _answered_later(
        self, outcome: Awaitable[RemotingCommand | None], address: str, request: RemotingCommand
    ) -> RemotingCommand | None:
        response = await outcome
        self.after(address, request, response)
        return response
