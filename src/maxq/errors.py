"""One exception tree.

MaxQError
├── ConfigError                 a setting or a settings file is wrong: names file, key, value, bound
│   └── ConfigUpdateRefusedError  a live update that was not made: refused, the names in the way
├── StoreError                  the store cannot do it
│   ├── StoreRefusedError       the broker will not start on this store: names file, what is wrong, what to do
│   ├── StoreFailedError        a running store cannot go on: the process should end
│   ├── ReplicationGapError     a master's bytes do not continue this slave's log: expected, received
│   ├── ReplicationDamageError  a master's bytes are no records: physical_offset
│   ├── ReplicationDivergedError  a slave's log and its master's differ: physical_offset
│   ├── LedgerMismatchError     entries, or an order to cut, that do not fit a DLedger log: index
│   └── MessageIllegalError     a message that must not be stored: names size and limit
├── BrokerEndedError            a broker was told to end while it started
├── ProtocolError               bytes that are not a frame, header, body or record
│   ├── LocalProtocolError      our caller's fault
│   └── RemoteProtocolError     the peer's fault
│       └── MissingFieldError   a required header field is absent or does not parse: name
├── RemotingError               the network between us
│   ├── RemotingConnectError    no connection: address, is_refused
│   ├── RemotingTimeoutError    no answer in time: address, timeout_ms
│   └── RemotingSendError       the connection broke while we waited
├── BrokerError                 a peer answered with a response code other than success
│   ├── NoRouteError            17 TOPIC_NOT_EXIST from the name server
│   └── DLedgerError            a code of DLedger's own: is_unknown
├── RequestRefusedError         a broker or name server will not do what a request asks: response_code, remark
│   ├── InvalidAttributeError   an attribute of a topic or group that is unknown, illegal or fixed
│   └── FilterExpressionError   an SQL92 expression that is wrong: 23 SUBSCRIPTION_PARSE_FAILED
├── FilterEvaluationError       a property that can not be compared as an expression asks: the message does not match
├── ClientError                 the client library was used wrongly or is not running
└── PipelineError               the pipeline on Spark cannot do what was asked
    ├── DataLossError           messages that were to be read are gone: queue, wanted, available
    └── JavaNotFoundError       no Java that Spark runs on
"""

from copy import copy
from typing import Any, Self


class MaxQError(Exception):
    """Base of all errors that are raised on purpose. Class attributes help callers to react."""

    response_code: int = 1  # code of the answer if the error ends the handling of a request
    retriable: bool = False  # may the same call succeed later or elsewhere?
    refresh_route: bool = False  # is the caller's route suspect?
    is_wrong_value: bool = False  # the caller passed a value that no server would accept
    may_be_stored: bool = False  # a send raised it, and its message may be stored all the same

    def __reduce__(self) -> tuple[Any, ...]:
        """Support `copy` and `pickle`, also of classes whose constructor takes other arguments than the message."""
        return _made_again, (type(self), self.args), self.__dict__


def _made_again(kind: type[MaxQError], args: tuple[object, ...]) -> MaxQError:
    return kind.__new__(kind, *args)


class ConfigError(MaxQError):
    """A setting or a settings file is wrong; the message names file, key, value and bound."""

    is_wrong_value = True


class ConfigUpdateRefusedError(ConfigError):
    """A live update that was refused; `refused` has the names of the settings that prevented it."""

    response_code = 16  # NO_PERMISSION, what RocketMQ answers for its black list

    def __init__(self, message: str, refused: tuple[str, ...]) -> None:
        super().__init__(message)
        self.refused = refused


class StoreError(MaxQError):
    """The message store cannot carry out a call."""


class StoreRefusedError(StoreError):
    """The broker will not start on this store; the message names the file, what is wrong and what to do."""


class StoreFailedError(StoreError):
    """A running store cannot continue, because data that the disk refused may be lost; the message says what to do."""


class ReplicationGapError(StoreError):
    """A master's bytes do not continue this slave's log; both are physical offsets."""

    def __init__(self, message: str, *, expected: int, received: int) -> None:
        super().__init__(message)
        self.expected = expected
        self.received = received


class ReplicationDamageError(StoreError):
    """A master's bytes from `physical_offset` on are not records."""

    def __init__(self, message: str, *, physical_offset: int) -> None:
        super().__init__(message)
        self.physical_offset = physical_offset


class ReplicationDivergedError(StoreError):
    """A slave's log holds other bytes than its master's, from `physical_offset` on at the latest."""

    def __init__(self, message: str, *, physical_offset: int) -> None:
        super().__init__(message)
        self.physical_offset = physical_offset


class LedgerMismatchError(StoreError):
    """Entries do not continue a DLedger log, or an order to cut it would remove what is committed; nothing from `index`
    on was written or cut."""

    def __init__(self, message: str, *, index: int) -> None:
        super().__init__(message)
        self.index = index


class LogRangeNotServedError(StoreError):
    """A master did not send a requested range of its log, or sent other bytes; the message names the range."""


class MessageIllegalError(StoreError):
    """A message that must not be stored; `size` and `limit` are in bytes (or counts, as the message says)."""

    response_code = 13

    def __init__(self, message: str, *, size: int = 0, limit: int = 0) -> None:
        super().__init__(message)
        self.size = size
        self.limit = limit


class BrokerEndedError(MaxQError):
    """A broker was told to end while it started; everything it had opened is closed."""


class ProtocolError(MaxQError):
    """Bytes that were received, or are to be sent, violate the protocol."""


class LocalProtocolError(ProtocolError):
    """This program used a value that the protocol cannot carry."""


class RemoteProtocolError(ProtocolError):
    """The peer sent bytes that violate the protocol; the connection must be closed."""

    may_be_stored = True


class MissingFieldError(RemoteProtocolError):
    """A request lacks the custom header field `name`, or its value does not parse. The connection is fine."""

    def __init__(self, name: str) -> None:
        super().__init__(f"the custom field <{name}> is null")
        self.name = name


class RemotingError(MaxQError):
    """The network between this program and `address` (host:port) failed.

    Attributes:
        remedy: what to do, as the message says it at its end; empty if it does not.
    """

    retriable = True
    remedy = ""

    def __init__(self, message: str, *, address: str = "") -> None:
        super().__init__(message)
        self.address = address

    def told_as(self, message: str, remedy: str = "") -> Self:
        """Return the same error with a message that says more."""
        told = copy(self)
        told.args, told.__cause__ = (f"{message}; {remedy}" if remedy else message,), self.__cause__
        told.remedy = remedy or self.remedy
        return told


class RemotingConnectError(RemotingError):
    """A connection could not be made. `is_refused` means that the host answers and the port is closed."""

    refresh_route = True

    def __init__(self, message: str, *, address: str = "", is_refused: bool = False) -> None:
        super().__init__(message, address=address)
        self.is_refused = is_refused


class UntrustedServerError(RemotingConnectError):
    """The server's certificate is not one that this client trusts: it answers so each time."""


class RemotingTimeoutError(RemotingError):
    """No answer within `timeout_ms`."""

    refresh_route = True
    may_be_stored = True

    def __init__(self, message: str, *, address: str = "", timeout_ms: int = 0) -> None:
        super().__init__(message, address=address)
        self.timeout_ms = timeout_ms


class RemotingSendError(RemotingError):
    """The connection broke before the answer came, or, if not `may_be_stored`, before the request was sent."""

    refresh_route = True

    def __init__(self, message: str, *, address: str = "", may_be_stored: bool = True) -> None:
        super().__init__(message, address=address)
        self.may_be_stored = may_be_stored


class BrokerError(MaxQError):
    """A server refused a request: it answered `code` with `remark`."""

    def __init__(self, code: int, remark: str | None, *, address: str = "") -> None:
        super().__init__(f"CODE: {code}  DESC: {remark or ''}" + (f"  BROKER: {address}" if address else ""))
        self.code = code
        self.response_code = code
        self.remark = remark or ""
        self.address = address


class NoRouteError(BrokerError):
    """The name server knows no broker for this topic."""

    retriable = True
    refresh_route = True


class DLedgerError(BrokerError):
    """A member of a DLedger group answered `code` (DLedgerResponseCode).

    Attributes:
        is_unknown: the entry may be in the log, or may still be appended.
    """

    def __init__(self, code: int, remark: str, *, address: str = "") -> None:
        super().__init__(code, remark, address=address)
        self.is_unknown = code in (501, 502)  # TERM_CHANGED, WAIT_QUORUM_ACK_TIMEOUT


class ClientError(MaxQError):
    """The client library was used wrongly, or is not running."""


class RequestRefusedError(MaxQError):
    """A server refuses a request; the message is the remark of the answer."""

    def __init__(self, code: int, remark: str) -> None:
        super().__init__(remark)
        self.response_code = code


class InvalidAttributeError(RequestRefusedError):
    """An attribute change that names an unknown key, a bad value, or a fixed attribute."""

    def __init__(self, remark: str) -> None:
        super().__init__(1, remark)


class FilterExpressionError(RequestRefusedError):
    """A wrong SQL92 expression; the message shows it, the position and the reason."""

    def __init__(self, remark: str) -> None:
        super().__init__(23, remark)


class FilterEvaluationError(MaxQError):
    """A value that cannot be compared as an expression asks; its message does not match. Never leaves maxq.filter."""


class PipelineError(MaxQError):
    """The pipeline on Spark cannot carry out a call; the message names the option or file, and the remedy."""


class DataLossError(PipelineError):
    """Messages that were to be read are gone, and `failOnDataLoss` is true.

    Attributes:
        queue: topic/broker/queue; of a store's files that are not records: file and place.
        wanted: offset that was asked for; None: it is not known.
        available: first and one past the last offset that are there; None: it is not known.
        end: one past the last offset that is lost; None: it is not known how many are.
        what: the message without the remedy.
    """

    def __init__(
        self,
        queue: str,
        wanted: int | None,
        available: tuple[int, int] | None,
        reason: str,
        end: int | None = None,
    ) -> None:
        if wanted is None:
            self.what = f"{queue}: {reason}"
        else:
            there = "" if available is None else f", available are {available[0]} to {available[1]} (excluded)"
            count = "" if end is None else f", {end - wanted} offsets ({wanted} to {end - 1}) are lost"
            self.what = f"queue {queue}: wanted offset {wanted}{there}{count}: {reason}"
        super().__init__(
            f"{self.what}. Set failOnDataLoss to false to continue with the remaining messages and count the lost ones"
        )
        self.queue = queue
        self.wanted = wanted
        self.available = available
        self.reason = reason
        self.end = end


class JavaNotFoundError(PipelineError):
    """No Java was found that Spark runs on; the message lists the places that were searched."""
