"""The client's own refusals (a branch of maxq.errors.ClientError)."""

from typing import TYPE_CHECKING

from maxq.errors import ClientError

if TYPE_CHECKING:
    import pyarrow as pa


class NameIllegalError(ClientError):
    """A topic or group name that cannot be used. The message names the rule that it breaks."""

    response_code = 13
    is_wrong_value = True


class WrongArgumentError(ClientError):
    """An argument or setting of the wrong type, or out of its bounds."""

    is_wrong_value = True


class BodyFormatError(ClientError):
    """A received body is not of the kind that was asked for (serializers.py). The message names topic, place and
    reason."""

    is_wrong_value = True


class MessageRefusedError(ClientError):
    """A message that would be refused by every broker; `size` and `limit` are in bytes."""

    response_code = 13

    def __init__(self, message: str, *, size: int = 0, limit: int = 0) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit


class NoMasterError(ClientError):
    """The route of a topic has no master that accepts messages: one may be starting, or an election may be under
    way."""

    retriable = True
    refresh_route = True


class SendFailedError(ClientError):
    """All attempts to send failed. `attempts` lists (broker name, error) in order; the last one is the `__cause__`.
    `may_be_stored` tells whether one of them may have stored the message."""

    retriable = True

    def __init__(self, message: str, attempts: list[tuple[str, Exception]]) -> None:
        super().__init__(message)
        self.attempts = attempts


class ArrowSendError(ClientError):
    """Not all rows of a table were sent (`send_arrow`). The `__cause__` is the first error; `retriable` and
    `is_wrong_value` are its own.

    Attributes:
        sent: what became of each row until then, as `send_arrow` returns it. Rows with a null `queueOffset` are not
            stored, or, where `mayBeStored` is true, nobody knows; `error` says why, where a request failed.
        may_be_stored: `mayBeStored` is true of a row.
    """

    def __init__(self, message: str, sent: "pa.RecordBatch", cause: Exception) -> None:
        super().__init__(message)
        self.sent = sent
        self.retriable = getattr(cause, "retriable", False)
        self.is_wrong_value = getattr(cause, "is_wrong_value", False)
        self.may_be_stored = True in sent.column("mayBeStored").unique().to_pylist()


class RequestTimeoutError(ClientError):
    """A request got no reply within `timeout_ms`."""

    response_code = 10006
    retriable = True
    may_be_stored = True

    def __init__(self, message: str, *, timeout_ms: int) -> None:
        super().__init__(message)
        self.timeout_ms = timeout_ms


class NotRunningError(ClientError):
    """The client was not started, or is shut down, perhaps while a call was under way (`may_be_stored`)."""

    def __init__(self, message: str, *, may_be_stored: bool = False) -> None:
        super().__init__(message)
        self.may_be_stored = may_be_stored
