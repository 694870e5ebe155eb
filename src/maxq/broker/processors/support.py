"""Shared parts of the broker's request processors.

A processor is an object that names its codes (`routes`). Its handlers get the connection and the request, and return
the answer, or raise: RequestRefusedError with the code and remark of the answer, MissingFieldError for a header field.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Final, Protocol, TypeVar

from maxq.codes import ResponseCode
from maxq.config.broker_config import BrokerConfig
from maxq.errors import RequestRefusedError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json.json_body import JsonBody
from maxq.remoting.connection import Processor
from maxq.remoting.server import RemotingServer

#: What Java writes when a handler forgot its response code; not passed on with an answer that succeeded.
UNSET_CODE_REMARK: Final = "not set any response code"


class Registers(Protocol):
    """Interface of a part that registers processors for request codes."""

    def register(self, server: RemotingServer) -> None:
        """Register a processor for each of the request codes that it answers."""
        ...


class RequestProcessor(ABC):
    """Answers the requests of some request codes."""

    @abstractmethod
    def routes(self) -> Mapping[int, Processor]:
        """Return the method that answers each request code."""

    def register(self, server: RemotingServer) -> None:
        for code, handler in self.routes().items():
            server.register(code, handler)


def body_reply(request: RemotingCommand, body: JsonBody, ext: dict[str, str] | None = None) -> RemotingCommand:
    """Make a successful reply with a JSON body."""
    return request.reply(ResponseCode.SUCCESS, None, ext, body.encode())


def refuse_if(remark: str | None, code: int = ResponseCode.INVALID_PARAMETER) -> None:
    """Raise RequestRefusedError with `code` unless the validation's remark is empty."""
    if remark is not None:
        raise RequestRefusedError(code, remark)


def refuse_queue_nums(what: str, nums: int, most: int, known: int = 0) -> None:
    """Raise RequestRefusedError if `what` cannot have so many queues, because queries about a topic visit each queue.

    Args:
        most: maxQueuesOfTopic.
        known: how many there are; so many may stay.
    """
    if nums < 0:
        refuse_if(f"{what} is {nums}, allowed is 0 to {most}")
    if nums > max(most, known):
        refuse_if(f"{what} is {nums}, allowed is 0 to {most} (maxQueuesOfTopic); use fewer, or raise the setting")


def topic_not_exist(topic: str) -> RequestRefusedError:
    """Make the error with code 17, worded as for most admin requests."""
    return RequestRefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")


def forwarded_reply(request: RemotingCommand, answer: RemotingCommand) -> RemotingCommand:
    """Make the answer to a forwarded request from the other server's answer."""
    remark = answer.remark
    if answer.code == ResponseCode.SUCCESS and remark == UNSET_CODE_REMARK:
        remark = None
    return request.reply(answer.code, remark, dict(answer.ext), answer.body)


T = TypeVar("T")


def page_of(
    table: Mapping[str, T],
    ext: Mapping[str, str],
    *,
    sequence_field: str,
    count_field: str,
    version: DataVersion,
    broker: BrokerConfig,
) -> dict[str, T]:
    """Return the requested part of a metadata table (topics, groups): all of it, unless the request names a start and a
    count.

    A reader whose `dataVersion` is not the table's starts again from the first name.
    """
    fields = HeaderFields(ext)
    text, sequence, count = fields.opt_str("dataVersion"), fields.opt_int(sequence_field), fields.opt_int(count_field)
    if not broker.enable_split_metadata or (text is None and sequence is None and count is None):
        return dict(table)
    start = sequence or 0
    if start and (not text or DataVersion.decode(text) != version):
        start = 0
    size = broker.split_metadata_size if count is None else min(count, broker.split_metadata_size)
    names = sorted(table)[max(start, 0) : max(start, 0) + max(size, 0)]
    return {name: table[name] for name in names}
