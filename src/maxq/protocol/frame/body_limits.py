"""Limits of the bodies that a server accepts, by request code, applied before anything parses a body.

A body of JSON costs by its objects, some 6 µs each with what is done for it, and by its bytes; one that only fastjson
reads costs 1 µs a byte. While it is worked off nobody else is answered, so each code that carries a list has a bound
far above what clients send. `BY_FRAME` names the codes whose bodies are messages, are passed on as they are, or have
limits where they are taken: they are bounded by the frame. The remaining codes of RocketMQ and MaxQ have no body; a
small one is ignored. Numbers that are no codes of theirs belong to DLedger's ports, whose bodies are log entries, or
are unused.
"""

from typing import Final, NamedTuple

import orjson

from maxq.codes import RequestCode as Code

__all__ = ["BY_FRAME", "MAX_DIALECT_BODY", "VALUES", "BodyLimit", "body_limits", "refusal_of_body"]

#: Most bytes of a body in fastjson's dialect: its parser is Python, and a body is read for access control and for the
#: processor.
MAX_DIALECT_BODY: Final = 16_384
_MIB: Final = 1 << 20
#: Commas for each object that a body may have: members of objects and items of lists.
VALUES: Final = 12


class BodyLimit(NamedTuple):
    """The limit of one code. `objects` is the largest number of JSON objects, 0 for a body that is not JSON; members
    and items may be VALUES times as many."""

    size: int  # bytes
    objects: int
    remedy: str


_SMALL: Final = BodyLimit(65_536, 1_000, "it contains one object: leave out everything else")
_LIST: Final = BodyLimit(_MIB, 2_000, "send it in parts")
_SETTINGS: Final = BodyLimit(32_768, 0, "send it in parts")
_NONE: Final = BodyLimit(65_536, 1_000, "this request has no body: leave it out")
#: Enough for a topic of 1,024 queues, each of which has moved a few times.
_MAPPING: Final = BodyLimit(_MIB, 5_000, "give the topic fewer queues")
_RUNS: Final = BodyLimit(_MIB, 10_000, "write in fewer partitions")
#: Codes whose bodies are bounded by the frame, see the module.
BY_FRAME: Final = frozenset(
    {
        Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE,
        Code.SEND_REPLY_MESSAGE_V2, Code.MAXQ_STAGE_MESSAGES, Code.CONSUME_MESSAGE_DIRECTLY,
        Code.GET_CONSUMER_RUNNING_INFO, Code.REGISTER_BROKER,
    }
)  # fmt: skip
_LIMITS: Final[dict[int, BodyLimit]] = {
    Code.HEART_BEAT: BodyLimit(_MIB, 3_000, "spread groups and subscriptions over more clients"),
    Code.CHECK_CLIENT_CONFIG: _SMALL,
    Code.LOCK_BATCH_MQ: _LIST,
    Code.UNLOCK_BATCH_MQ: _LIST,
    Code.BATCH_ACK_MESSAGE: _LIST,
    Code.QUERY_ASSIGNMENT: _SMALL,
    Code.SET_MESSAGE_REQUEST_MODE: _SMALL,
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _LIST,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _SMALL,
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _LIST,
    Code.UPDATE_BROKER_CONFIG: _SETTINGS,
    Code.UPDATE_NAMESRV_CONFIG: _SETTINGS,
    Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: _SETTINGS,
    Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: _SETTINGS,
    Code.UPDATE_AND_CREATE_STATIC_TOPIC: _MAPPING,
    Code.MAXQ_DECIDE_STAGED: _RUNS,
    Code.MAXQ_DELIVER_STAGED: _RUNS,
    Code.QUERY_DATA_VERSION: _SMALL,
    Code.REGISTER_TOPIC_IN_NAMESRV: _LIST,
    Code.AUTH_CREATE_USER: _SMALL,
    Code.AUTH_UPDATE_USER: _SMALL,
    Code.AUTH_CREATE_ACL: _SMALL,
    Code.AUTH_UPDATE_ACL: _SMALL,
}
for _code in Code:
    if _code not in BY_FRAME:
        _LIMITS.setdefault(_code, _NONE)


def body_limits() -> dict[int, BodyLimit]:
    """Return the limits of request bodies, by request code; a code that is not in it is bounded by the frame."""
    return dict(_LIMITS)


def refusal_of_body(code: int, body: bytes) -> str | None:
    """Return why a request with this code and body is not parsed; None if it may be parsed."""
    limit = _LIMITS.get(code)
    if limit is None:
        return None
    if len(body) > limit.size:
        return _refusal(code, f"{len(body)} bytes", limit.size, limit)
    if not limit.objects:
        return None
    objects = body.count(b"{")
    if objects > limit.objects:
        return _refusal(code, f"{objects} objects", limit.objects, limit)
    values = body.count(b",")
    if values > VALUES * limit.objects:
        return _refusal(code, f"{values} values", VALUES * limit.objects, limit)
    if len(body) > MAX_DIALECT_BODY:
        try:
            orjson.loads(body)
        except orjson.JSONDecodeError as error:
            return (
                f"the body of request {code} has {len(body)} bytes and is no standard JSON ({error}); what fastjson "
                f"alone reads is taken up to {MAX_DIALECT_BODY} bytes"
            )
    return None


def _refusal(code: int, measured: str, most: int, limit: BodyLimit) -> str:
    return f"the body of request {code} has {measured}, the limit is {most}; {limit.remedy}"
