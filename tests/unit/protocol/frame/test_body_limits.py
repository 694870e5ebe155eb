"""Bodies that are refused before anybody parses them."""

import json

import pytest

from maxq.codes import RequestCode
from maxq.protocol.frame.body_limits import MAX_DIALECT_BODY, VALUES, body_limits, refusal_of_body
from maxq.protocol.frame.remoting_command import RemotingCommand
from tests.unit.remoting.peers import connected, echo, serving


@pytest.mark.parametrize("code", sorted(body_limits()))
def test_a_body_up_to_the_limits_is_taken_and_more_is_refused_with_the_limit(code: int) -> None:
    limit = body_limits()[code]
    assert refusal_of_body(code, b'"' + b"x" * (limit.size - 2) + b'"') is None
    said = refusal_of_body(code, b"x" * (limit.size + 1)) or ""
    assert f"request {code} has {limit.size + 1} bytes, the limit is {limit.size}; " in said and limit.remedy in said
    if limit.objects:
        assert refusal_of_body(code, json.dumps([{}] * limit.objects).encode()) is None
        said = refusal_of_body(code, json.dumps([{}] * (limit.objects + 1)).encode()) or ""
        assert f"has {limit.objects + 1} objects, the limit is {limit.objects}; " in said
        values = VALUES * limit.objects
        assert refusal_of_body(code, b"[1" + b",1" * values + b"]") is None
        assert f"the limit is {values}; " in (refusal_of_body(code, b"[1" + b",1" * (values + 1) + b"]") or "")


def test_fastjsons_dialect_has_a_limit_of_its_own() -> None:
    code = RequestCode.HEART_BEAT
    assert refusal_of_body(code, b"{clientID:'" + b"x" * (MAX_DIALECT_BODY - 13) + b"'}") is None
    said = refusal_of_body(code, b"{clientID:'" + b"x" * MAX_DIALECT_BODY + b"'}") or ""
    assert f"up to {MAX_DIALECT_BODY} bytes" in said


def test_a_request_without_a_body_takes_a_small_one_at_most() -> None:
    for code in (RequestCode.GET_BROKER_CONFIG, RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.POP_MESSAGE):
        assert refusal_of_body(code, bytes(1_000)) is None
        assert "this request has no body" in (refusal_of_body(code, bytes(100_000)) or "")


def test_a_mapping_of_a_static_topic_is_bounded() -> None:
    code = RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC
    items = [{"bname": f"broker-{number}", "gen": number, "queueId": 0} for number in range(3_000)]
    assert refusal_of_body(code, json.dumps({"hostedQueues": {"0": items}}).encode()) is None
    assert refusal_of_body(code, bytes(2 << 20)) is not None


def test_messages_are_bounded_by_the_frame_alone() -> None:
    for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.REGISTER_BROKER):
        assert refusal_of_body(code, bytes(16_000_000)) is None


async def test_a_server_says_so_and_the_connection_lives_on() -> None:
    code, size = RequestCode.LOCK_BATCH_MQ, body_limits()[RequestCode.LOCK_BATCH_MQ].size
    async with serving(lambda server: server.register(code, echo)) as server, connected(server.port) as peer:
        refused = await peer.ask(RemotingCommand(code, body=bytes(size + 1)))
        assert refused.code == 29 and f"the limit is {size}; send it in parts" in (refused.remark or "")
        assert (await peer.ask(RemotingCommand(code, body=b"{}"))).code == 0
