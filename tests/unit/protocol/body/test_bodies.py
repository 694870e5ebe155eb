"""JSON bodies: what the golden recordings do not show."""

import contextlib
import dataclasses
import zlib

import pytest
from fuzz.targets import BODIES
from hypothesis import given
from hypothesis import strategies as st

from maxq.errors import LocalProtocolError, RemoteProtocolError
from maxq.protocol.body.data_version import DataVersion
from maxq.protocol.body.heartbeat import HeartbeatData
from maxq.protocol.body.offsets import ConsumerOffsetSerializeWrapper, ResetOffsetBody, TopicStatsTable
from maxq.protocol.body.register_broker import RegisterBrokerBody
from maxq.protocol.body.route import BrokerData, TopicRouteData
from maxq.protocol.body.subscription import SubscriptionData, SubscriptionGroupConfig, build_subscription_data
from maxq.protocol.body.topic_config import TopicConfig, TopicConfigAndMappingSerializeWrapper, TopicList, perm_text
from maxq.protocol.enums import ConsumeFromWhere, ConsumeType, MessageModel, TopicFilterType
from maxq.protocol.json.json_body import JsonBody, read_int
from maxq.protocol.message.message import crc31
from maxq.protocol.message.message_queue import MessageQueue

PROTOCOL_BODIES = [kind for kind in BODIES if kind.__module__.startswith("maxq.protocol.")]


@pytest.mark.parametrize("kind", PROTOCOL_BODIES, ids=lambda kind: kind.__name__)
def test_every_body_class_survives_json_with_its_defaults(kind: type[JsonBody]) -> None:
    body = kind()
    assert kind.decode(body.encode()) == body
    assert kind.decode(body.encode_pretty()) == body
    assert kind.decode(b"") == kind.decode(None) == kind.decode(b"null") == body
    names = list(body.to_json())
    assert names == sorted(names)
    for value in (b"[]", b"1", b'"x"'):
        with pytest.raises(RemoteProtocolError, match=f"{kind.__name__} is a JSON object"):
            kind.decode(value)


@pytest.mark.parametrize("kind", PROTOCOL_BODIES, ids=lambda kind: kind.__name__)
def test_every_member_refuses_what_it_cannot_be(kind: type[JsonBody]) -> None:
    """A member of the wrong kind is named, never another exception."""
    wires = kind().to_json() | {"x": None}
    for field in dataclasses.fields(kind):
        for wrong in ([[]], {"a": []}, "not this", -1, 1 << 70, True, {"a": {"b": []}}):
            for wire in (*wires, field.name):
                with contextlib.suppress(RemoteProtocolError):
                    kind.from_json({wire: wrong})


def test_heartbeat_of_the_cpp_client_with_ordinals_and_number_strings_is_read() -> None:
    body = HeartbeatData.decode(
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"G","messageModel":1,'
        b'"subscriptionDataSet":[{"codeSet":[0],"subString":"*","subVersion":"1700000000000","tagsSet":["TagA"],'
        b'"topic":"T"}]}],"producerDataSet":[{"groupName":"P"}]}\n'
    )
    (consumer,) = body.consumer_data_set
    assert consumer.consume_type is ConsumeType.CONSUME_PASSIVELY
    assert consumer.message_model is MessageModel.CLUSTERING
    assert consumer.consume_from_where is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    assert consumer.subscription_data_set[0].sub_version == 1700000000000
    assert consumer.subscription_data_set[0].expression_type == "TAG"
    assert (body.heartbeat_fingerprint, body.without_sub) == (0, False)


@pytest.mark.parametrize(
    ("text", "member"),
    [
        ('{"consumerDataSet":{}}', "consumerDataSet"),
        ('{"consumerDataSet":[{"consumeType":9}]}', "consumeType"),
        ('{"consumerDataSet":[{"consumeType":"NEVER"}]}', "consumeType"),
        ('{"heartbeatFingerprint":"x"}', "heartbeatFingerprint"),
        ('{"heartbeatFingerprint":[]}', "heartbeatFingerprint"),
        ('{"producerDataSet":[1]}', "ProducerData"),
    ],
)
def test_a_member_of_the_wrong_kind_is_named(text: str, member: str) -> None:
    with pytest.raises(RemoteProtocolError, match=member):
        HeartbeatData.decode(text)


def test_route_is_compact_json_with_quoted_broker_ids() -> None:
    route = TopicRouteData(broker_datas=[BrokerData("c", "b", {0: "1.2.3.4:1", 1: "1.2.3.4:2"})])
    text = route.encode()
    assert b'"brokerAddrs":{"0":"1.2.3.4:1","1":"1.2.3.4:2"}' in text
    assert b" " not in text and b"\n" not in text and b"orderTopicConf" not in text
    assert TopicRouteData.decode(text) == route
    assert TopicRouteData.decode(text.replace(b'"0":', b"0:").replace(b'"1":', b"1:")) == route


def test_tables_by_queue_take_object_keys_and_their_text() -> None:
    table = {MessageQueue("T", "a", 0): 12}
    text = '{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:12}}'
    assert ResetOffsetBody.decode(text).offset_table == table
    key = '"{\\"brokerName\\":\\"a\\",\\"queueId\\":0,\\"topic\\":\\"T\\"}"'
    assert ResetOffsetBody.decode(f'{{"offsetTable":{{{key}:12}}}}').offset_table == table
    with pytest.raises(RemoteProtocolError, match="message queue"):
        TopicStatsTable.decode('{"offsetTable":{"5":{}}}')


def test_reset_offset_has_a_list_form_for_cpp() -> None:
    body = ResetOffsetBody({MessageQueue("T", "a", 3): 12})
    assert body.to_json_for_cpp() == {
        "offsetTable": [{"brokerName": "a", "offset": 12, "queueId": 3, "topic": "T"}]
    }  # fmt: skip
    assert ResetOffsetBody.from_json(body.to_json_for_cpp()) == body
    for rows in ([1], [{"offset": "x"}], [{}]):
        with pytest.raises(RemoteProtocolError):
            ResetOffsetBody.from_json({"offsetTable": rows})


def test_consumer_offsets_have_integer_queue_ids() -> None:
    body = ConsumerOffsetSerializeWrapper.decode('{"offsetTable":{"T@G":{0:12,"1":9}}}')
    assert body.offset_table == {"T@G": {0: 12, 1: 9}}
    assert body.encode() == b'{"offsetTable":{"T@G":{"0":12,"1":9}}}'


def test_data_versions_grow_and_compare_by_all_three() -> None:
    version = DataVersion()
    version.next_version(1700000000000, 3)
    assert version == DataVersion(1, 3, 1700000000000)
    assert version.encode() == b'{"counter":1,"stateVersion":3,"timestamp":1700000000000}'
    copy = version.copy()
    copy.next_version(1700000000000, 3)
    assert copy != version
    version.assign(copy)
    assert copy == version


def test_topic_text_goes_both_ways_and_attributes_may_be_missing() -> None:
    topic = TopicConfig("T", 4, 8, 6, TopicFilterType.MULTI_TAG, attributes={"+a": "b c"})
    assert topic.encode_text() == 'T 4 8 6 MULTI_TAG {"+a":"b c"}'
    assert TopicConfig.decode_text(topic.encode_text()) == topic
    assert TopicConfig.decode_text("T 4 8 6 SINGLE_TAG").attributes == {}
    for text in ("T 4 8 6", "T x 8 6 SINGLE_TAG", "T 4 8 6 NO_TAG", "T 4 8 6 SINGLE_TAG [1]", "T 4 8 6 SINGLE_TAG {"):
        with pytest.raises(RemoteProtocolError):
            TopicConfig.decode_text(text)


def test_permissions_are_shown_and_asked_for() -> None:
    assert [perm_text(perm) for perm in (0, 2, 4, 6, 7)] == ["---", "-W-", "R--", "RW-", "RWX"]
    assert [TopicConfig("T", perm=perm).is_inherited for perm in (4, 5)] == [False, True]


def registration() -> RegisterBrokerBody:
    wrapper = TopicConfigAndMappingSerializeWrapper(data_version=DataVersion(1, 0, 1700000000000))
    wrapper.topic_config_table = {"T1": TopicConfig("T1", 4, 4), "T2": TopicConfig("T2", 8, 8)}
    return RegisterBrokerBody(wrapper)


def test_vector_of_the_compressed_registration() -> None:
    packed = registration().encode_body(compressed=True, broker_version=479)
    assert zlib.decompress(packed) == bytes.fromhex(
        "00000038 7b22636f756e746572223a312c22737461746556657273696f6e223a302c2274696d657374616d70223a3137303030303030"
        "30303030307d 00000002 00000016 54312034203420362053494e474c455f544147207b7d"
        "00000016 54322038203820362053494e474c455f544147207b7d 00000002 5b5d 00000000"
    )
    assert (len(packed), crc31(packed)) == (98, 1647093813)
    assert RegisterBrokerBody.decode_body(packed, compressed=True, broker_version=479) == registration()
    old = registration().encode_body(compressed=True, broker_version=400)
    assert zlib.decompress(old) == zlib.decompress(packed)[:-4]


def test_plain_registration_is_json() -> None:
    body = registration().encode_body(compressed=False)
    assert RegisterBrokerBody.decode_body(body, compressed=False, broker_version=479) == registration()


@given(st.binary(max_size=150), st.sampled_from([400, 479]))
def test_any_inflated_registration_is_one_or_the_protocol_error(data: bytes, version: int) -> None:
    with contextlib.suppress(RemoteProtocolError):
        RegisterBrokerBody.decode_body(zlib.compress(data), compressed=True, broker_version=version)


@given(st.data())
def test_damaged_registrations_are_one_or_the_protocol_error(data: st.DataObject) -> None:
    plain = bytearray(zlib.decompress(registration().encode_body(compressed=True)))
    for _ in range(data.draw(st.integers(1, 3))):
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(RemoteProtocolError):
        RegisterBrokerBody.decode_body(zlib.compress(plain), compressed=True, broker_version=479)


@pytest.mark.parametrize("expression", [None, "", "*"])
def test_a_subscription_to_everything_names_no_tag(expression: str | None) -> None:
    data = build_subscription_data("T", expression)
    assert (data.sub_string, data.tags_set, data.code_set, data.accepts_all) == ("*", set(), set(), True)


def test_a_tag_expression_is_split_and_hashed() -> None:
    data = build_subscription_data("T", " TagA||TagB || TagA", sub_version=5)
    assert data == SubscriptionData("T", " TagA||TagB || TagA", {"TagA", "TagB"}, {2598919, 2598920}, 5)
    assert data.is_tag_type and not data.accepts_all


def test_other_expressions_are_carried_and_empty_ones_refused() -> None:
    data = build_subscription_data("T", "a > 5", "SQL92")
    assert (data.expression_type, data.sub_string, data.is_tag_type) == ("SQL92", "a > 5", False)
    for expression, kind in (("||", "TAG"), (" || ", None), ("", "SQL92")):
        with pytest.raises(LocalProtocolError):
            build_subscription_data("T", expression, kind)


def test_unknown_members_are_ignored_and_defaults_are_javas() -> None:
    config = SubscriptionGroupConfig.decode('{"groupName":"G","fromTheFuture":{"x":[1]}}')
    assert (config.retry_max_times, config.retry_queue_nums, config.consume_timeout_minute) == (16, 1, 15)
    assert TopicConfig.decode('{"topicName":"T"}').write_queue_nums == 16
    assert TopicList.decode('{"topicList":["a",null,7]}').topic_list == ["a", "7"]


@pytest.mark.parametrize(
    "value", [1 << 63, -(1 << 63) - 1, 1e30, float("inf"), float("nan"), "9223372036854775808"], ids=str
)
def test_numbers_stay_within_javas_long(value: object) -> None:
    with pytest.raises(ValueError):
        read_int(value)
    assert read_int(str((1 << 63) - 1)) == (1 << 63) - 1
