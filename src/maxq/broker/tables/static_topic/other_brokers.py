"""OtherBrokers: where requests about physical queues of other brokers go.

Source:
    broker/out/BrokerOuterAPI.java (rpcClient), remoting/rpc/ClientMetadata.java.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Final

from maxq.broker.tables.static_topic.pull_answers import STANDS_IN
from maxq.codes import ResponseCode
from maxq.errors import RemotingError, RequestRefusedError
from maxq.protocol.body.route import TopicRouteData
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.client import RemotingClient

#: Answers of a slave to requests that only its master answers.
_MASTERS_ONLY: Final = (
    ResponseCode.NO_PERMISSION,
    ResponseCode.SLAVE_NOT_AVAILABLE,
    ResponseCode.SERVICE_NOT_AVAILABLE,
)


class OtherBrokers:
    """Forwards requests to other brokers. Addresses come from the topic's route. Addresses of masters are kept until a
    broker cannot be reached, or a slave answers."""

    def __init__(
        self,
        client: RemotingClient,
        topic_route: Callable[[str], Awaitable[TopicRouteData | None]],
        timeout_ms: Callable[[], int],
    ) -> None:
        self._client = client
        self._topic_route = topic_route
        self._timeout_ms = timeout_ms
        self._addresses: dict[str, str] = {}

    async def ask(
        self,
        broker_name: str,
        topic: str,
        code: int,
        ext: Mapping[str, str],
        body: bytes | None = None,
        *,
        physical: bool = True,
        or_slave: bool = False,
        until: float | None = None,
    ) -> RemotingCommand:
        """Return the answer of a broker's master to a request about one of its physical queues.

        Args:
            physical: look no further (`lo=false`). Otherwise the request is about the static topic.
            or_slave: while the master is away ask one of its slaves. Its answer has STANDS_IN, because it may lack the
                end of the queue; RocketMQ's slaves do not say so themselves.
            until: when to give up, in seconds of the event loop's time, if that is before forwardTimeout is over. None:
                only that counts.

        Raises:
            RequestRefusedError: that broker is not known, or does not answer.
        """
        try:
            async with asyncio.timeout_at(until):
                address = self._addresses.get(broker_name) or await self._find(broker_name, topic, or_slave)
            is_slave = address != self._addresses.get(broker_name)
            ext = {**ext, "lo": "false" if physical else "true", "bname": broker_name}
            request = RemotingCommand(code, ext, body)
            answer = await self._client.invoke(address, request, self._left_ms(until))
            if is_slave:
                answer = replace(answer, ext={**answer.ext, STANDS_IN: "true"})
            if STANDS_IN in answer.ext or answer.code in _MASTERS_ONLY:  # the master may be back elsewhere
                self._addresses.pop(broker_name, None)
            return answer
        except RemotingError as error:
            self._addresses.pop(broker_name, None)
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"broker {broker_name}, which holds this part of {topic}: {error}"
            ) from error
        except TimeoutError as error:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR, f"the name server did not tell in time where broker {broker_name} is"
            ) from error

    def _left_ms(self, until: float | None) -> int:
        if until is None:
            return self._timeout_ms()
        return min(self._timeout_ms(), max(1, round((until - asyncio.get_running_loop().time()) * 1000)))

    async def _find(self, broker_name: str, topic: str, or_slave: bool) -> str:
        route = await self._topic_route(topic)
        slaves: list[str] = []
        for data in route.broker_datas if route is not None else ():
            if data.master_address is not None:
                self._addresses[data.broker_name] = data.master_address
            elif data.broker_name == broker_name and or_slave:
                slaves = data.addresses
        address = self._addresses.get(broker_name) or next(iter(slaves), None)
        if address is None:
            raise RequestRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"part of {topic} is on broker {broker_name}, which the name server does not list with a master: start "
                "it, or remap the topic with remappingStaticTopic",
            )
        return address
