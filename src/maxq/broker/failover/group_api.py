"""Requests of the members of a broker group to name servers and to one another (BrokerOuterAPI.java)."""

import asyncio
import contextlib
from collections.abc import Callable
from enum import Enum

from maxq.broker.identity.broker_identity import BrokerAddress, SlaveSign
from maxq.broker.tables.topic.topic_validator import SYNC_BROKER_MEMBER_PREFIX
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, MaxQError, RemotingConnectError, RemotingSendError
from maxq.protocol.body.route import GetBrokerMemberGroupResponseBody, TopicRouteData
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.admin import ExchangeHAInfoHeader
from maxq.protocol.header.namesrv import (
    BrokerHeartbeatRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    GetRouteInfoRequestHeader,
)
from maxq.remoting.client import RemotingClient
from maxq.remoting.first_answers import until_answered

_CALL_TIMEOUT_MS = 3_000
_LIVING_ANSWERS_S = 0.5
_ASK_AGAIN_S = 0.05


class Sign(Enum):
    """What a slave learns about its master by asking it.

    LIVES       the master answers, and is active as far as it says (RocketMQ's says nothing)
    PREPARES    it answers, and is not active yet: it finds out which slave acted for it
    GONE        its process has ended or is ending: nobody listens at its address, or another broker does
    SILENT      its state is unknown: it stands still, or the network is interrupted
    """

    LIVES = "lives"
    PREPARES = "prepares"
    GONE = "gone"
    SILENT = "silent"

    @property
    def is_answer(self) -> bool:
        """Return whether the master has answered the slave's question, be it active yet or not."""
        return self in (Sign.LIVES, Sign.PREPARES)


class GroupApi:
    """Calls in the name of the broker `own`.

    Every call that has an answer raises RemotingError when there is none and BrokerError when it is not success.
    """

    def __init__(self, client: RemotingClient, own: BrokerAddress, hear_mark: Callable[[str], None]) -> None:
        """`hear_mark` is told the mark of the log of a master that was asked for a sign of life."""
        self._client = client
        self._hear_mark = hear_mark
        self._own = own
        self._stamp = ""  # of the last answer of a master

    # --- name servers -------------------------------------------------------------------------------------------

    async def member_group(self, *, compatible: bool) -> dict[int, str]:
        """Return the living brokers of this broker's name, id → address; empty if no name server knows the name. All
        name servers are asked, because one that does not hear a broker, or was just started, does not name it. Once one
        has answered, silent ones are not waited for. An error that `is_refusal` means that no name server runs.

        `compatible` asks for the route of a topic that every broker has, which name servers before 5.0 answer too.
        """
        ask = self._members_by_route if compatible else self._members
        asked = [asyncio.create_task(ask(address)) for address in self._client.name_servers]
        try:
            await until_answered(asked)
            ended = [task for task in asked if task.done()]
        finally:
            for task in asked:
                if not task.cancel() and not task.cancelled():
                    # it ended in the same turn as the answer that counts: mark its exception as retrieved
                    task.exception()
        if not ended:
            raise RemotingConnectError("no name server address is set", address="")
        answers = [task.result() for task in ended if task.exception() is None]
        if not answers:
            failures = [error for task in ended if (error := task.exception()) is not None]
            raise next((error for error in failures if not is_refusal(error)), failures[0])
        members: dict[int, str] = {}
        for answer in reversed(answers):  # if name servers disagree about an id, the first one's address wins
            members |= answer
        return members

    async def _members(self, name_server: str) -> dict[int, str]:
        header = GetBrokerMemberGroupRequestHeader(self._own.cluster, self._own.broker_name)
        request = RemotingCommand(RequestCode.GET_BROKER_MEMBER_GROUP, header.encode())
        answer = await self._client.invoke(name_server, request, _CALL_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark)
        return GetBrokerMemberGroupResponseBody.decode(answer.body_bytes).broker_member_group.broker_addrs

    async def _members_by_route(self, name_server: str) -> dict[int, str]:
        header = GetRouteInfoRequestHeader(SYNC_BROKER_MEMBER_PREFIX + self._own.broker_name, True)
        request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.encode())
        answer = await self._client.invoke(name_server, request, _CALL_TIMEOUT_MS)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return {}
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark)
        for broker in TopicRouteData.decode(answer.body_bytes).broker_datas:
            if broker.broker_name == self._own.broker_name and broker.cluster == self._own.cluster:
                return dict(broker.broker_addrs)
        return {}

    async def heartbeat(self, name_server: str, timeout_ms: int) -> None:
        """Send this broker's heartbeat (904) to a name server, which does not answer it."""
        own = self._own
        header = BrokerHeartbeatRequestHeader(own.cluster, own.address, own.broker_name)
        await self._client.invoke_oneway(
            name_server, RemotingCommand(RequestCode.BROKER_HEARTBEAT, header.encode()), timeout_ms
        )

    # --- one another --------------------------------------------------------------------------------------------

    async def retrieve_ha_info(self, master: str) -> ExchangeHAInfoHeader:
        """Ask a master for its HA address (906 without an address)."""
        request = RemotingCommand(RequestCode.EXCHANGE_BROKER_HA_INFO, ExchangeHAInfoHeader().encode())
        return ExchangeHAInfoHeader.decode((await self._invoke(master, request)).ext)

    async def sign_of(
        self, master: str, acts: Callable[[], bool] = lambda: False, is_told: Callable[[], bool] = lambda: True
    ) -> Sign:
        """Ask a master whether it is alive (906), with a time-out of half a second, and tell it that this slave is. A
        connection that breaks is made once more, because a refused connection proves that the port is closed.

        Args:
            acts: does this slave act, or is about to? If not, it returns the stamp of the answer.
            is_told: does it act because a name server has said so lately? The master is told that.
        """
        own = self._own_signs
        if acts() and is_told():
            own[SlaveSign.ACTS] = "true"
        self._stamp = ""
        sign = await self._sign(master, own, self._masters_sign_in)
        if self._stamp and not acts():
            request = RemotingCommand(
                RequestCode.EXCHANGE_BROKER_HA_INFO,
                {**ExchangeHAInfoHeader().encode(), **self._own_signs, SlaveSign.STAMP: self._stamp},
            )
            with contextlib.suppress(MaxQError):  # the next one may come through
                await self._client.invoke_oneway(master, request, _CALL_TIMEOUT_MS)
        return sign

    async def ask_to_stand_back(self, master: str) -> Sign:
        """Ask a master that answers, and that name servers miss, to leave the group to this slave. LIVES: it does not,
        for a name server knows it. GONE: it does, or it is RocketMQ's and does not know the question."""
        return await self._sign(master, {**self._own_signs, SlaveSign.STAND_BACK: "true"}, _stands_back)

    @property
    def _own_signs(self) -> dict[str, str]:
        return {
            SlaveSign.BROKER_NAME: self._own.broker_name,
            SlaveSign.ID: str(self._own.broker_id),
            SlaveSign.ADDRESS: self._own.address,
        }

    async def sign_of_slave(self, slave: str) -> Sign:
        """Ask another slave whether it is alive, as `sign_of` asks the master: LIVES, GONE or SILENT."""
        return await self._sign(slave, {SlaveSign.BROKER_NAME: self._own.broker_name}, self._slaves_sign_in)

    def _masters_sign_in(self, answer: RemotingCommand) -> Sign:
        sign = _sign_in(answer)
        if sign.is_answer:
            self._stamp = HeaderFields(answer.ext).opt_str(SlaveSign.STAMP) or ""
            self._hear_mark(HeaderFields(answer.ext).opt_str(SlaveSign.LOG_MARK) or "")
        return sign

    def _slaves_sign_in(self, answer: RemotingCommand) -> Sign:
        """Derive the sign from an answer of another slave. RocketMQ's slaves do not say whose they are."""
        name = HeaderFields(answer.ext).opt_str(SlaveSign.BROKER_NAME)
        is_gone = answer.code == ResponseCode.SERVICE_NOT_AVAILABLE or name not in (None, self._own.broker_name)
        return Sign.GONE if is_gone else Sign.LIVES

    async def _sign(self, address: str, own: dict[str, str], read: Callable[[RemotingCommand], Sign]) -> Sign:
        request = RemotingCommand(RequestCode.EXCHANGE_BROKER_HA_INFO, {**ExchangeHAInfoHeader().encode(), **own})
        try:
            async with asyncio.timeout(_LIVING_ANSWERS_S):
                while True:
                    try:
                        return read(await self._client.invoke(address, request, _CALL_TIMEOUT_MS))
                    except RemotingSendError:
                        await asyncio.sleep(_ASK_AGAIN_S)
        except RemotingConnectError as error:
            return Sign.GONE if error.is_refused else Sign.SILENT
        except (MaxQError, TimeoutError):
            return Sign.SILENT

    async def send_ha_info(self, slave: str, info: ExchangeHAInfoHeader) -> None:
        """Tell a slave its master's HA address (906 with an address)."""
        await self._invoke(slave, RemotingCommand(RequestCode.EXCHANGE_BROKER_HA_INFO, info.encode()))

    def drop_connection(self, address: str) -> None:
        """Drop the connection to a lost master; its unanswered requests fail at once."""
        self._client.close_connection(address, "the master of this group is gone")

    async def _invoke(self, address: str, request: RemotingCommand) -> RemotingCommand:
        answer = await self._client.invoke(address, request, _CALL_TIMEOUT_MS)
        if answer.code != ResponseCode.SUCCESS:
            raise BrokerError(answer.code, answer.remark, address=address)
        return answer


def _sign_in(answer: RemotingCommand) -> Sign:
    """Derive the sign from an answer of the master. A slave that has taken over the address names no master; a master
    that refuses, because it is busy or denies permission, is alive."""
    if answer.code == ResponseCode.SERVICE_NOT_AVAILABLE:
        return Sign.GONE
    if answer.code == ResponseCode.SUCCESS and not ExchangeHAInfoHeader.decode(answer.ext).master_address:
        return Sign.GONE
    is_active = HeaderFields(answer.ext).opt_bool(SlaveSign.IS_ACTIVE, True)
    return Sign.LIVES if is_active else Sign.PREPARES


def _stands_back(answer: RemotingCommand) -> Sign:
    if answer.code != ResponseCode.SUCCESS:
        return _sign_in(answer)
    return Sign.GONE if HeaderFields(answer.ext).opt_bool(SlaveSign.STANDS_BACK, True) else Sign.LIVES


def is_refusal(error: BaseException) -> bool:
    """Return whether this says that nobody listens at an address."""
    return isinstance(error, RemotingConnectError) and error.is_refused
