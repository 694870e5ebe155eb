"""Codes and texts with which calls are answered.

Source:
    proxy/grpc/v2/common/{ResponseBuilder,GrpcProxyException}.java.
"""

from typing import Final

from maxq.codes import ResponseCode
from maxq.errors import MaxQError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb

#: How a broker's refusal is told to gRPC clients; any other is INTERNAL_SERVER_ERROR.
_CODES: Final[dict[int, pb.Code]] = {
    ResponseCode.SUCCESS: pb.Code.OK,
    ResponseCode.SYSTEM_BUSY: pb.Code.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: pb.Code.NOT_IMPLEMENTED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: pb.Code.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.TOPIC_NOT_EXIST: pb.Code.TOPIC_NOT_FOUND,
    ResponseCode.NO_PERMISSION: pb.Code.FORBIDDEN,
}


class CallRefusedError(Exception):
    """Raised while a call is served: it is answered with this code of RocketMQ's and this text."""

    def __init__(self, code: pb.Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def status(code: pb.Code, message: str = "") -> pb.Status:
    """Make a status; without a text its message is the code's name."""
    return pb.Status(code=code, message=message or code.name)


OK: Final = status(pb.Code.OK)


def code_of(response_code: int) -> pb.Code:
    """Return RocketMQ's code for the response code of a broker."""
    return _CODES.get(response_code, pb.Code.INTERNAL_SERVER_ERROR)


def status_of_reply(reply: RemotingCommand | None) -> pb.Status:
    """Return the status for a broker's answer; None: it could not be had."""
    if reply is None:
        return status(pb.Code.INTERNAL_SERVER_ERROR, "the connection to the broker broke before it had answered")
    if reply.code == ResponseCode.SUCCESS:
        return OK
    return status(code_of(reply.code), reply.remark or str(int(reply.code)))


def refusal_of_reply(reply: RemotingCommand | None) -> CallRefusedError:
    """Return the error for a broker's answer that is no success."""
    told = status_of_reply(reply)
    return CallRefusedError(pb.Code(told.code), told.message)


def status_of_error(error: Exception) -> pb.Status:
    """Return the status for an error that ended a call."""
    if isinstance(error, CallRefusedError):
        return status(error.code, str(error))
    if isinstance(error, MaxQError):
        return status(code_of(error.response_code), str(error))
    return status(pb.Code.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
