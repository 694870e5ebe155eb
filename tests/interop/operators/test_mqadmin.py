"""mqadmin 5.5.0, unmodified, against every mixture of servers. What it prints is what operators and scripts read."""

import json
import re

import pytest

from tests.interop.conftest import Deployment
from tests.interop.processes.java_driver import JavaDriver

pytestmark = pytest.mark.interop
COUNT = 20


class MqAdmin:
    """mqadmin with the deployment's name server."""

    def __init__(self, deployment: Deployment, driver: JavaDriver) -> None:
        self.deployment = deployment
        self.driver = driver
        self.broker = deployment.broker.address

    def __call__(self, command: str, *arguments: str) -> str:
        text = self.driver.mqadmin(command, "-n", self.deployment.namesrv, *arguments)
        assert "Exception" not in text, text
        return text

    def rows(self, command: str, *arguments: str) -> list[list[str]]:
        """Lines of a table whose header line starts with '#', split at blanks."""
        lines = self(command, *arguments).splitlines()
        head = next(i for i, line in enumerate(lines) if line.startswith("#"))
        return [line.split() for line in lines[head + 1 :] if line.strip()]


@pytest.fixture(scope="module")
def mqadmin(deployment: Deployment, driver: JavaDriver) -> MqAdmin:
    """mqadmin; topic A has 20 messages in 4 queues, consumed and committed by group CG_A."""
    admin = MqAdmin(deployment, driver)
    admin("updateTopic", "-c", "DefaultCluster", "-t", "A", "-r", "4", "-w", "4")
    driver.send(deployment.namesrv, "A", COUNT, "orderly", tag="TagA")
    assert len(driver.consume(deployment.namesrv, "A", COUNT)) == COUNT
    return admin


def first_message(mqadmin: MqAdmin) -> dict[str, str]:
    """The label lines of the first message of queue 0."""
    text = mqadmin("queryMsgByOffset", "-t", "A", "-b", "broker-a", "-i", "0", "-o", "0")
    return labels(text)


def labels(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines() if re.match(r"[A-Z][\w ]+:", line))
    return {name.strip(): value.strip() for name, _, value in pairs}


def test_cluster_list(mqadmin: MqAdmin) -> None:
    (row,) = mqadmin.rows("clusterList")
    assert row[:4] == ["DefaultCluster", "broker-a", "0", mqadmin.broker]
    assert row[4].startswith("V5_")
    assert row[-1] == "true"
    (more,) = mqadmin.rows("clusterList", "-m")
    assert more[:2] == ["DefaultCluster", "broker-a"] and all(cell.isdecimal() for cell in more[2:])


def test_topic_list_and_clusters_of_a_topic(mqadmin: MqAdmin) -> None:
    topics = mqadmin("topicList").split()
    assert {"A", "%RETRY%CG_A", "TBW102", "DefaultCluster", "broker-a", "SCHEDULE_TOPIC_XXXX"} <= set(topics)
    assert ["DefaultCluster", "A", "CG_A"] in mqadmin.rows("topicList", "-c")
    assert mqadmin("topicClusterList", "-t", "A").split() == ["DefaultCluster"]


def test_topic_route(mqadmin: MqAdmin) -> None:
    route = json.loads(re.sub(r"(?m)^(\s*)(\d+):", r'\1"\2":', mqadmin("topicRoute", "-t", "A")))
    assert route["queueDatas"] == [
        {"brokerName": "broker-a", "perm": 6, "readQueueNums": 4, "topicSysFlag": 0, "writeQueueNums": 4}
    ]
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": mqadmin.broker}
    row = mqadmin.rows("topicRoute", "-t", "A", "-l")[0]
    assert row[:2] == ["DefaultCluster", "broker-a"] and row[-3:] == ["4", "4", "6"]


def test_topic_status(mqadmin: MqAdmin) -> None:
    rows = [row for row in mqadmin.rows("topicStatus", "-t", "A") if row[0] == "broker-a"]
    assert [row[:4] for row in rows] == [["broker-a", str(queue), "0", "5"] for queue in range(4)]
    assert all(re.match(r"\d{4}-\d\d-\d\d", row[4]) for row in rows)


def test_create_change_and_delete_a_topic(mqadmin: MqAdmin) -> None:
    text = mqadmin(
        "updateTopic", "-b", mqadmin.broker, "-t", "B", "-r", "2", "-w", "3", "-p", "6", "-a", "+message.type=NORMAL"
    )
    assert f"create topic to {mqadmin.broker} success." in text
    assert "topicName=B, readQueueNums=2, writeQueueNums=3, perm=RW-" in text
    text = mqadmin("updateTopicPerm", "-t", "B", "-b", mqadmin.broker, "-p", "4")
    assert f"update topic perm from 6 to 4 in {mqadmin.broker} success." in text
    assert "TagA" not in text
    assert "delete topic [B] from cluster [DefaultCluster] success." in mqadmin(
        "deleteTopic", "-t", "B", "-c", "DefaultCluster"
    )
    assert "B" not in mqadmin("topicList").split()


def test_ordered_topic_writes_the_order_configuration(mqadmin: MqAdmin) -> None:
    text = mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "Ordered", "-r", "2", "-w", "2", "-o", "true")
    assert "set cluster orderConf. isOrder=true, orderConf=[broker-a:2]" in text
    assert "orderConf=[broker-a:2]" in mqadmin("updateOrderConf", "-t", "Ordered", "-m", "get")


def test_allocate_mq(mqadmin: MqAdmin) -> None:
    result = json.loads(mqadmin("allocateMQ", "-t", "A", "-i", "10.0.0.1,10.0.0.2"))["result"]
    assert set(result) == {"10.0.0.1", "10.0.0.2"}  # who gets which half depends on the order of a Java set
    assert sorted(sorted(queue["queueId"] for queue in queues) for queues in result.values()) == [[0, 1], [2, 3]]


def test_create_show_and_delete_a_group(mqadmin: MqAdmin) -> None:
    text = mqadmin("updateSubGroup", "-c", "DefaultCluster", "-g", "CG_B", "-r", "5", "-q", "2")
    assert f"create subscription group to {mqadmin.broker} success." in text
    assert "groupName=CG_B" in text and "retryQueueNums=2" in text and "retryMaxTimes=5" in text
    shown = mqadmin("getConsumerConfig", "-g", "CG_B")
    assert "=DefaultCluster:broker-a=" in shown
    assert re.search(r"retryMaxTimes\s+=\s+5", shown)
    text = mqadmin("deleteSubGroup", "-c", "DefaultCluster", "-g", "CG_B")
    assert (
        f"delete subscription group [CG_B] from broker [{mqadmin.broker}] in cluster [DefaultCluster] success." in text
    )
    assert not re.search(r"retryMaxTimes\s+=\s+5", mqadmin("getConsumerConfig", "-g", "CG_B"))  # new again, if at all


def test_lists_of_topics_and_groups_from_files(mqadmin: MqAdmin, tmp_path) -> None:  # type: ignore[no-untyped-def]
    topics = tmp_path / "topics.json"
    topics.write_text(
        json.dumps([{"topicName": f"L{i}", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6} for i in range(3)])
    )
    assert "success" in mqadmin("updateTopicList", "-b", mqadmin.broker, "-f", str(topics))
    groups = tmp_path / "groups.json"
    groups.write_text(json.dumps([{"groupName": f"GL{i}"} for i in range(3)]))
    assert "success" in mqadmin("updateSubGroupList", "-b", mqadmin.broker, "-f", str(groups))
    assert {"L0", "L1", "L2"} <= set(mqadmin("topicList").split())
    assert "groupName" in mqadmin("getConsumerConfig", "-g", "GL2")


def test_consumer_progress(mqadmin: MqAdmin) -> None:
    text = mqadmin("consumerProgress", "-g", "CG_A")
    rows = [line.split() for line in text.splitlines() if line.startswith("A ")]
    assert [row[:6] for row in rows] == [["A", "broker-a", str(queue), "5", "5", "0"] for queue in range(4)]
    assert "Consume Diff Total: 0" in text
    assert any(row[0] == "CG_A" for row in mqadmin.rows("consumerProgress"))


def test_query_by_offset_id_key_and_unique_key(mqadmin: MqAdmin) -> None:
    found = first_message(mqadmin)
    assert (found["Topic"], found["Queue ID"], found["Queue Offset"]) == ("A", "0", "0")
    assert "A-key-0" in found["Keys"] and "TagA" in found["Tags"]
    assert labels(mqadmin("queryMsgById", "-t", "A", "-i", found["OffsetID"]))["Keys"] == found["Keys"]
    (row,) = mqadmin.rows("queryMsgByKey", "-t", "A", "-k", "A-key-0")
    unique_key = row[0]
    assert row[1:3] == ["0", "0"]
    shown = labels(mqadmin("queryMsgByUniqueKey", "-t", "A", "-i", unique_key))
    assert (shown["Topic"], shown["Keys"]) == ("A", found["Keys"])


def test_print_messages(mqadmin: MqAdmin) -> None:
    text = mqadmin("printMsg", "-t", "A", "-d", "true")
    assert sorted(re.findall(r"BODY: A\|(\d+)\|", text), key=int) == [str(number) for number in range(COUNT)]
    text = mqadmin("printMsgByQueue", "-t", "A", "-a", "broker-a", "-i", "1", "-p", "true", "-d", "true", "-f", "true")
    assert len(re.findall(r"MSGID: ", text)) == 5
    assert re.search(r"Tag: TagA\s+Count: 5", text)


def test_send_and_consume_messages(mqadmin: MqAdmin) -> None:
    mqadmin("updateTopic", "-c", "DefaultCluster", "-t", "Sent", "-r", "1", "-w", "1")
    (row,) = mqadmin.rows(
        "sendMessage", "-t", "Sent", "-p", "hello", "-k", "k1", "-c", "t1", "-b", "broker-a", "-i", "0"
    )
    assert row[:3] == ["broker-a", "0", "SEND_OK"]
    text = mqadmin("consumeMessage", "-t", "Sent", "-b", "broker-a", "-i", "0", "-o", "0", "-c", "1")
    assert "Consume ok" in text and "KEYS=k1" in text


def test_broker_status(mqadmin: MqAdmin) -> None:
    status = labels_of_status(mqadmin("brokerStatus", "-b", mqadmin.broker))
    assert status["brokerVersionDesc"].startswith("V5_")
    assert int(status["commitLogMaxOffset"]) > int(status["commitLogMinOffset"]) == 0
    wanted = {"bootTimestamp", "brokerActive", "putTps", "getTransferredTps", "runtime", "sendThreadPoolQueueSize"}
    wanted |= {
        "commitLogDiskRatio",
        "consumeQueueDiskRatio",
        "dispatchBehindBytes",
        "pageCacheLockTimeMills",
        "msgPutTotalTodayNow",
    }
    assert wanted <= status.keys()


def labels_of_status(text: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in text.splitlines() if ":" in line)
    return {name.strip(): value.strip() for name, _, value in pairs}


def test_read_and_change_broker_settings(mqadmin: MqAdmin) -> None:
    text = mqadmin("updateBrokerConfig", "-b", mqadmin.broker, "-k", "fileReservedTime", "-v", "71")
    assert f"update broker config success, {mqadmin.broker}" in text
    shown = mqadmin("getBrokerConfig", "-b", mqadmin.broker)
    assert f"============{mqadmin.broker}============" in shown
    assert re.search(r"fileReservedTime\s+=\s+71", shown)
    for name in ("brokerName", "storePathRootDir", "flushDiskType", "brokerIP1", "brokerRole"):
        assert re.search(rf"(?m)^{name}\s+=", shown), name
    assert "Master: " in mqadmin("getBrokerConfig", "-c", "DefaultCluster")


def test_reset_offsets(mqadmin: MqAdmin) -> None:
    rows = mqadmin.rows("resetOffsetByTime", "-g", "CG_A", "-t", "A", "-s", "0")
    assert [row[2] for row in rows if row[0] == "broker-a"] == ["0"] * 4
    assert "Consume Diff Total: 20" in mqadmin("consumerProgress", "-g", "CG_A")
    rows = mqadmin.rows("skipAccumulatedMessage", "-g", "CG_A", "-t", "A", "-f", "true")
    assert [row[2] for row in rows if row[0] == "broker-a"] == ["5"] * 4
    assert "Consume Diff Total: 0" in mqadmin("consumerProgress", "-g", "CG_A")
    text = mqadmin("resetOffsetByTime", "-g", "CG_A", "-t", "A", "-s", "0", "-b", mqadmin.broker, "-q", "2", "-o", "3")
    assert "reset consumer offset to 3" in text
    assert "Consume Diff Total: 2" in mqadmin("consumerProgress", "-g", "CG_A")


def test_clone_group_offsets(mqadmin: MqAdmin) -> None:
    mqadmin("updateSubGroup", "-c", "DefaultCluster", "-g", "CG_clone")
    text = mqadmin("cloneGroupOffset", "-s", "CG_A", "-d", "CG_clone", "-t", "A", "-o", "true")
    assert "clone group offset success. srcGroup[CG_A], destGroup=[CG_clone], topic[A]" in text


def test_connections(mqadmin: MqAdmin) -> None:
    namesrv = mqadmin.deployment.namesrv
    driver = mqadmin.driver
    with driver.client("producer", group="PG_live", namesrv=namesrv) as producer:
        driver.call("send", name=producer, topic="A2", count=1, mode="sync", text="x")
        text = mqadmin("producerConnection", "-g", "PG_live", "-t", "A2")
        assert re.search(r"0001\s+\S+\s+127\.0\.0\.1:\d+\s+JAVA\s+V5_5_0", text)
        assert "PG_live" in mqadmin("producer", "-b", mqadmin.broker)
    with driver.client("consumer", group="CG_live", namesrv=namesrv, topic="A2", expression="TagX || TagY") as consumer:
        driver.call("received", name=consumer, count=0, seconds=0)
        text = mqadmin("consumerConnection", "-g", "CG_live")
        assert "A2" in text and "TagX || TagY" in text
        assert "ConsumeType: CONSUME_PASSIVELY" in text and "MessageModel: CLUSTERING" in text
        text = mqadmin("consumerStatus", "-g", "CG_live")
        assert "CG_live" in text or "#ClientId" in text


def test_statistics_and_consume_stats(mqadmin: MqAdmin) -> None:
    assert any(row[:2] == ["A", "CG_A"] for row in mqadmin.rows("statsAll", "-t", "A"))
    assert any(row[0] == "A" for row in mqadmin.rows("brokerConsumeStats", "-b", mqadmin.broker))


def test_consume_queue_units(mqadmin: MqAdmin) -> None:
    text = mqadmin("queryCq", "-t", "A", "-q", "0", "-i", "0", "-c", "3", "-b", mqadmin.broker)
    assert "max: 5" in text and "min: 0" in text
    assert text.count("physicOffset") == 3


def test_cleaning_commands(mqadmin: MqAdmin) -> None:
    for command in ("cleanExpiredCQ", "cleanUnusedTopic", "deleteExpiredCommitLog"):
        assert "success" in mqadmin(command, "-b", mqadmin.broker), command


def test_name_server_commands(mqadmin: MqAdmin) -> None:
    assert "create or update kv config to namespace success." in mqadmin(
        "updateKvConfig", "-s", "NS", "-k", "key", "-v", "value"
    )
    assert "delete kv config from namespace success." in mqadmin("deleteKvConfig", "-s", "NS", "-k", "key")
    namesrv = mqadmin.deployment.namesrv
    assert re.search(
        rf"wipe write perm of broker\[broker-a\] in name server\[{namesrv}\] OK, [1-9]",
        mqadmin("wipeWritePerm", "-b", "broker-a"),
    )
    assert '"perm":4' in mqadmin("topicRoute", "-t", "A")
    assert re.search(
        rf"add write perm of broker\[broker-a\] in name server\[{namesrv}\] OK, [1-9]",
        mqadmin("addWritePerm", "-b", "broker-a"),
    )
    assert '"perm":6' in mqadmin("topicRoute", "-t", "A")
    assert re.search(r"listenPort\s+=", mqadmin("getNamesrvConfig"))


def test_message_send_round_trips(mqadmin: MqAdmin) -> None:
    rows = mqadmin.rows("checkMsgSendRT", "-t", "A3", "-a", "5", "-s", "16")
    assert [row[2] for row in rows if row[0] == "broker-a"] == ["true"] * len(
        [row for row in rows if row[0] == "broker-a"]
    )
    assert mqadmin("sendMsgStatus", "-b", "broker-a", "-s", "16", "-c", "2").count("SEND_OK") >= 2
