"""What requests need: the rules of single requests, and that every request code has one."""

import pytest

from maxq.auth.needs import NEEDS, needs_of
from maxq.auth.plain_acl import Permission, PlainAccount
from maxq.auth.plain_needs import plain_needs_of
from maxq.codes import RequestCode as Code
from maxq.errors import RemoteProtocolError
from maxq.protocol.body.heartbeat import ConsumerData, HeartbeatData
from maxq.protocol.body.offsets import LockBatchRequestBody
from maxq.protocol.body.pop import decode_batch_acks
from maxq.protocol.body.subscription import SubscriptionData
from maxq.protocol.message.message import Message, encode_batch
from maxq.protocol.message.message_queue import MessageQueue

TG = {"topic": "T", "consumerGroup": "G"}
RETRY = {"topic": "%RETRY%G", "consumerGroup": "G"}
LIGHT = "KEYS\x01k\x02INNER_MULTI_DISPATCH\x01%LMQ%a,%LMQ%b\x02"


def words(code: int, ext: dict[str, str] | None = None, body: bytes = b"", *, strict: bool = True) -> list[str]:
    needs = needs_of(code, ext or {}, body, cluster_name="C", strict=strict)
    if needs is None:
        return ["refused"]
    return sorted(f"{need.resource.key} {'/'.join(action.value for action in need.actions)}" for need in needs)


@pytest.mark.parametrize(
    ("code", "ext", "needed"),
    [
        (Code.SEND_MESSAGE, {"topic": "T", "b": "U"}, ["Topic:T Pub"]),
        (Code.SEND_MESSAGE, {"topic": "%RETRY%G", "group": "H"}, ["Group:G Sub"]),  # 5.5: by the topic alone
        (Code.SEND_MESSAGE_V2, {"b": "T", "topic": "U"}, ["Topic:T Pub"]),
        (Code.SEND_MESSAGE_V2, {"b": "%RETRY%G", "a": "H"}, ["Group:G Sub"]),
        (Code.SEND_BATCH_MESSAGE, {"b": "T"}, ["Topic:T Pub"]),
        (Code.PULL_MESSAGE, TG, ["Group:G Sub", "Topic:T Sub"]),
        (Code.PULL_MESSAGE, RETRY, ["Group:G Sub"]),
        (Code.QUERY_MESSAGE, TG, ["Topic:T Sub/Get"]),
        (Code.QUERY_CONSUMER_OFFSET, TG, ["Group:G Sub/Get", "Topic:T Sub/Get"]),
        (Code.UPDATE_CONSUMER_OFFSET, RETRY, ["Group:G Sub/Update"]),
        (Code.GET_ROUTEINFO_BY_TOPIC, TG, ["Topic:T Pub/Sub/Get"]),
        (Code.GET_ROUTEINFO_BY_TOPIC, RETRY, ["Group:G Sub/Get"]),
        (Code.END_TRANSACTION, {"topic": "T"}, ["Topic:T Pub"]),
        (Code.END_TRANSACTION, {}, []),  # clients before 5.0 do not say
        (Code.CONSUMER_SEND_MSG_BACK, {"group": "G", "originTopic": "T"}, ["Group:G Sub"]),
        (Code.UNREGISTER_CLIENT, {"consumerGroup": "G"}, ["Group:G Sub"]),
        (Code.UNREGISTER_CLIENT, {"producerGroup": "P"}, []),
        (Code.POP_MESSAGE, TG, ["Group:G Sub", "Topic:T Sub"]),
        (Code.POP_MESSAGE, RETRY, ["Group:G Sub"]),
        (Code.PULL_MESSAGE, {"topic": "%RETRY%H", "consumerGroup": "G"}, ["Group:G Sub", "Group:H Sub"]),
        (Code.SEND_REPLY_MESSAGE, {"topic": "T"}, ["Topic:T Pub"]),
        (Code.SEND_REPLY_MESSAGE_V2, {"b": "%RETRY%G"}, ["Group:G Sub"]),
        (Code.SEND_REPLY_MESSAGE_V2, {"b": "C_REPLY_TOPIC"}, []),
        (
            Code.GET_CONSUME_STATS,
            {**TG, "topicList": "U;V"},
            ["Group:G Get", "Topic:T Get", "Topic:U Get", "Topic:V Get"],
        ),
        (
            Code.QUERY_CORRECTION_OFFSET,
            {"topic": "T", "filterGroups": "G,H"},
            ["Group:G Get", "Group:H Get", "Topic:T Get"],
        ),
        (Code.ACK_MESSAGE, {**TG, "topic": "%RETRY%G_T"}, ["Group:G Sub", "Topic:T Sub"]),
        (Code.CHANGE_MESSAGE_INVISIBLETIME, {**TG, "topic": "%RETRY%G+T"}, ["Group:G Sub", "Topic:T Sub"]),
        (Code.ACK_MESSAGE, {**TG, "topic": "%RETRY%G_%RETRY%H"}, ["Group:G Sub", "Group:H Sub"]),
        (Code.ACK_MESSAGE, {**TG, "topic": "%RETRY%H_T"}, ["Group:G Sub", "Group:H_T Sub"]),
        (Code.ACK_MESSAGE, {"topic": "%RETRY%G_T"}, ["Group:G_T Sub"]),
        (Code.UPDATE_AND_CREATE_TOPIC, TG, ["Topic:T Create"]),
        (Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G"}, ["Group:G Delete"]),
        (Code.AUTH_CREATE_USER, {"username": "u"}, ["Cluster:C Update"]),
        (Code.AUTH_LIST_USER, {}, ["Cluster:C Get"]),
        (Code.REGISTER_BROKER, {"clusterName": "D"}, ["Cluster:D Update"]),
        (Code.MAXQ_STAGE_MESSAGES, {"topic": "T"}, ["Topic:T Pub"]),
        (99_999, {}, ["refused"]),
        # the topics in which brokers keep everybody's messages
        (Code.SEND_MESSAGE_V2, {"b": "rmq_sys_wheel_timer"}, ["Cluster:C Update"]),
        (Code.SEND_BATCH_MESSAGE, {"b": "rmq_sys_REVIVE_LOG_C"}, ["Cluster:C Update"]),
        (Code.SEND_REPLY_MESSAGE_V2, {"b": "RMQ_SYS_TRANS_HALF_TOPIC"}, ["Cluster:C Update"]),
        (Code.PULL_MESSAGE, {**TG, "topic": "SCHEDULE_TOPIC_XXXX"}, ["Cluster:C Update", "Group:G Sub"]),
        (Code.POP_MESSAGE, {**TG, "topic": "rmq_sys_wheel_timer"}, ["Cluster:C Update", "Group:G Sub"]),
        (Code.GET_MAX_OFFSET, {"topic": "rmq_sys_wheel_timer"}, ["Topic:rmq_sys_wheel_timer Get"]),
        (Code.SEND_MESSAGE_V2, {"b": "RMQ_SYS_TRACE_TOPIC"}, ["Topic:RMQ_SYS_TRACE_TOPIC Pub"]),
        (Code.PULL_MESSAGE, {**TG, "topic": "TRANS_CHECK_MAX_TIME_TOPIC"}, ["Cluster:C Update", "Group:G Sub"]),
        # the light queues that a message is put into as well
        (
            Code.SEND_MESSAGE,
            {"topic": "T", "properties": LIGHT},
            ["Topic:%LMQ%a Pub", "Topic:%LMQ%b Pub", "Topic:T Pub"],
        ),
        (Code.SEND_MESSAGE_V2, {"b": "T", "i": LIGHT}, ["Topic:%LMQ%a Pub", "Topic:%LMQ%b Pub", "Topic:T Pub"]),
        (Code.SEND_REPLY_MESSAGE_V2, {"b": "C_REPLY_TOPIC", "i": LIGHT}, ["Topic:%LMQ%a Pub", "Topic:%LMQ%b Pub"]),
        (
            Code.CLONE_GROUP_OFFSET,
            {"topic": "T", "srcGroup": "G", "destGroup": "H"},
            ["Group:G Update", "Group:H Update", "Topic:T Update"],
        ),
    ],
)
def test_what_a_request_needs(code: int, ext: dict[str, str], needed: list[str]) -> None:
    assert words(code, ext) == needed


def test_what_bodies_name() -> None:
    beat = HeartbeatData(
        consumer_data_set=[
            ConsumerData("G", subscription_data_set=[SubscriptionData("T", "*"), SubscriptionData("%RETRY%G", "*")])
        ]
    )
    assert words(Code.HEART_BEAT, {}, beat.encode()) == ["Group:G Sub", "Topic:T Sub"]
    lock = LockBatchRequestBody("G", mq_set=[MessageQueue("T", "b", 0), MessageQueue("T", "b", 1)])
    assert words(Code.LOCK_BATCH_MQ, {}, lock.encode()) == ["Group:G Sub", "Topic:T Sub"]
    acks = b'{"acks":[{"c":"G","t":"T"},{"c":"G","t":"%RETRY%G"}]}'
    assert words(Code.BATCH_ACK_MESSAGE, {}, acks) == ["Group:G Sub", "Topic:T Sub"]
    other_names = b'{"acks":[{"c":"G","t":null,"topic":"T"},{"consumerGroup":"H","topic":"U"}]}'
    named = [(ack.group, ack.topic) for ack in decode_batch_acks(other_names)[1]]  # what is acknowledged is judged
    assert words(Code.BATCH_ACK_MESSAGE, {}, other_names) == sorted(
        {f"Group:{group} Sub" for group, _ in named} | {f"Topic:{topic} Sub" for _, topic in named}
    )
    staged = encode_batch([Message("", b"x", {"INNER_MULTI_DISPATCH": names}) for names in ("%LMQ%a", "%LMQ%b,%LMQ%a")])
    assert words(Code.MAXQ_STAGE_MESSAGES, {"topic": "T"}, staged) == [
        "Topic:%LMQ%a Pub", "Topic:%LMQ%b Pub", "Topic:T Pub",
    ]  # fmt: skip
    for code in (Code.HEART_BEAT, Code.LOCK_BATCH_MQ, Code.BATCH_ACK_MESSAGE):
        with pytest.raises(RemoteProtocolError):
            words(code, {}, b"[1")


CHANGES = [18, 25, 200, 225, 306, 316, 318, 329, 401, 2001, 2002, 2004]


@pytest.mark.parametrize("code", CHANGES)
def test_what_changes_a_server_needs_the_cluster_unless_rocketmq_s_rules_are_wanted(code: int) -> None:
    assert words(code, {}) == ["Cluster:C Update"]
    assert words(code, {}, strict=False) == []


def test_pulls_and_acks_that_rocketmq_does_not_judge_are_judged_when_strict() -> None:
    assert words(Code.LITE_PULL_MESSAGE, TG) == ["Group:G Sub", "Topic:T Sub"]
    assert words(Code.LITE_PULL_MESSAGE, TG, strict=False) == []
    assert words(Code.BATCH_ACK_MESSAGE, {}, b"[1", strict=False) == []


OPEN = {
    21, 26, 28, 43, 45, 46, 60, 61, 106, 201, 206, 224, 304, 305, 311, 312, 313, 319, 400, 402, 1006, 1007,
    2003,
}  # fmt: skip
#: Fields that are not there name nothing; their processors refuse such requests.
BY_FIELDS_ONLY = {
    12, 17, 29, 30, 31, 32, 33, 35, 36, 37, 38, 202, 203, 207, 208, 215, 222, 223, 300, 303, 307, 308, 309, 314, 321,
    323, 343, 345, 351, 352, 353, 354, 370, 30071, 30072, 30073, 30074,
    200050, 200051, 200052, 200053, 200054, 200055,
}  # fmt: skip


@pytest.mark.parametrize("code", sorted(Code), ids=lambda code: code.name)
def test_only_what_is_listed_here_needs_nothing(code: Code) -> None:
    """A request code that is new is refused until somebody says what it needs."""
    body = b'{"consumerGroup":"G","acks":[{"c":"G","t":"T"}],"consumerDataSet":[{"groupName":"G"}]}'
    assert (words(code, {}, body) == []) == (code in OPEN | BY_FIELDS_ONLY)
    assert (words(code, {}, body) == ["refused"]) == (code not in NEEDS)


# --- ACL 1.0 ----------------------------------------------------------------------------------------------------------

ACCOUNT = PlainAccount(
    "user123", "secret1", lambda address: False,
    topic_perms={"T": Permission.PUB, "D": Permission.DENY, "B": Permission.PUB | Permission.SUB},
    group_perms={"G": Permission.SUB},
)  # fmt: skip


@pytest.mark.parametrize(
    ("code", "ext", "words"),
    [
        (310, {"b": "T"}, None),
        (320, {"b": "D"}, "No default permission for topic:D"),
        (310, {"b": "U"}, "No default permission for topic:U"),
        (310, {"b": "RMQ_SYS_TRACE_TOPIC"}, None),
        (310, {"b": "RMQ_SYS_TRACE_TOPIC", "i": LIGHT}, "No default permission for topic:%LMQ%a"),
        (11, {"topic": "B", "consumerGroup": "G"}, None),
        (11, {"topic": "T", "consumerGroup": "G"}, "No default permission for topic:T"),
        (11, {"topic": "B", "consumerGroup": "H"}, "No default permission for group:H"),
        (36, {"group": "G"}, None),
        (105, {"topic": "D"}, None),
        (17, {"topic": "T"}, "Need admin permission for request code=17, but accessKey=user123 is not"),
        (50, {}, "Need admin permission"),
        (318, {}, "Need admin permission"),
        (103, {}, "Need admin permission"),
        (222, {"topic": "T", "group": "G"}, "Need admin permission"),
        (200050, {"topic": "D", "consumerGroup": "G"}, "No default permission for topic:D"),
        (223, {"topic": "B", "group": "H"}, "No default permission for group:H"),
        (307, {"consumerGroup": "H"}, "No default permission for group:H"),
        (352, {"group": "H"}, "No default permission for group:H"),  # it would be made
        (352, {"group": "G"}, None),
        (200055, {"topic": "B", "consumerGroup": "H"}, "No default permission for group:H"),
        (3005, {}, "Need admin permission"),
        (30061, {}, "Need admin permission"),
        (28, {}, None),
        (52, {}, None),
        (99_999, {}, "Need admin permission"),
        (310, {"b": "rmq_sys_wheel_timer"}, "Need admin permission"),
        (11, {"topic": "SCHEDULE_TOPIC_XXXX", "consumerGroup": "G"}, "Need admin permission"),
    ],
)
def test_what_an_account_of_acl_1_may(code: int, ext: dict[str, str], words: str | None) -> None:
    why = plain_needs_of(code, ext, b"").refusal(ACCOUNT, code)
    assert why is None if words is None else words in (why or "")
    admin = PlainAccount("admin12", "secret1", lambda address: False, True)
    assert plain_needs_of(code, ext, b"").refusal(admin, code) is None


def test_rocketmq_s_rules_of_acl_1_let_all_else_pass() -> None:
    for code, ext in ((318, {}), (103, {}), (200050, {"topic": "D", "consumerGroup": "G"})):
        assert plain_needs_of(code, ext, b"", strict=False).refusal(ACCOUNT, code) is None
    assert plain_needs_of(25, {}, b"", strict=False).refusal(ACCOUNT, 25) is not None
