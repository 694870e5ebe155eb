"""The rarer admin commands against a running server: exports, send times, cold reads, monitoring, what is refused."""

import json
from pathlib import Path

import pytest

from maxq.protocol.message.message import MessageExt, encode_host, encode_record
from maxq.testing.server_process import StandaloneProcess
from tests.integration.cli.harness import maxq
from tests.integration.cli.test_admin_commands import Admin


@pytest.fixture(scope="module")
def admin(server: StandaloneProcess) -> Admin:
    """Topic More has two messages, of which group slow_readers has one."""
    found = Admin(server)
    found.text("updateTopic", "-b", found.broker, "-t", "More", "-r", "2", "-w", "2")
    assert maxq("produce", "More", text="one\ntwo\n", namesrv=server.namesrv_address).code == 0
    got = maxq("consume", "More", "--group", "slow_readers", "--max", "1", namesrv=server.namesrv_address)
    assert got.code == 0, got.err
    return found


def test_metadata_of_a_broker_and_of_a_cluster_is_exported_without_the_systems_own(
    admin: Admin, tmp_path: Path
) -> None:
    said = admin.text("exportMetadata", "-c", "DefaultCluster", "-f", str(tmp_path / "new"))
    path = tmp_path / "new" / "metadata.json"
    assert said == f"export {path} success\n"
    found = json.loads(path.read_text())
    assert found["topicConfigTable"]["More"]["readQueueNums"] == 2
    assert "slow_readers" in found["subscriptionGroupTable"] and found["exportTime"] > 1e12
    assert not {"TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a", "%RETRY%slow_readers"} & found["topicConfigTable"].keys()
    assert not {"TOOLS_CONSUMER", "CID_ONSAPI_PULL"} & found["subscriptionGroupTable"].keys()
    admin.text("exportMetadata", "-b", admin.broker, "-t", "-s", "-f", str(tmp_path))
    assert "%RETRY%slow_readers" in json.loads((tmp_path / "topic.json").read_text())["topicConfigTable"]
    admin.text("exportMetadata", "-b", admin.broker, "-g", "-f", str(tmp_path))
    assert set(json.loads((tmp_path / "subscriptionGroup.json").read_text())) == {
        "subscriptionGroupTable", "exportTime",
    }  # fmt: skip
    refused = admin.run("exportConfigs", "-c", "DefaultCluster", "-f", "/proc/none")
    assert refused.code == 2 and "/proc/none/configs.json cannot be written" in refused.err


def test_configs_and_figures_of_a_cluster_are_exported(admin: Admin, tmp_path: Path) -> None:
    admin.text("exportConfigs", "-c", "DefaultCluster", "-f", str(tmp_path))
    configs = json.loads((tmp_path / "configs.json").read_text())
    assert configs["clusterScale"] == {"namesrvSize": 1, "masterBrokerSize": 1, "slaveBrokerSize": 0}
    assert configs["brokerConfigs"]["broker-a"]["brokerId"] == "0"
    admin.text("exportMetrics", "-c", "DefaultCluster", "-f", str(tmp_path))
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    quota = metrics["evaluateReport"]["broker-a"]["runtimeQuota"]
    assert quota["topicSize"] >= 1 and quota["groupSize"] >= 1 and float(quota["diskRatio"]["commitLogDiskRatio"]) > 0
    assert set(metrics["totalData"]["totalTps"]) == {
        "totalNormalInTps", "totalNormalOutTps", "totalTransInTps", "totalScheduleInTps",
    }  # fmt: skip


def test_send_times_are_measured_per_message_and_per_broker(admin: Admin) -> None:
    sent = admin.json("sendMsgStatus", "-b", "broker-a", "-s", "16", "-c", "3")
    assert [row["status"] for row in sent] == ["SEND_OK"] * 3  # type: ignore[attr-defined]
    assert admin.text("sendMsgStatus", "-b", "broker-a", "-c", "1").startswith("rt=")
    text = admin.text("checkMsgSendRT", "-t", "More", "-a", "4", "-s", "16")
    assert text.count("true") == 4 and text.splitlines()[-1].startswith("Avg RT: ")
    (row,) = admin.json("clusterRT", "-a", "3")  # type: ignore[misc]
    assert (row["brokerName"], row["successCount"], row["failCount"]) == ("broker-a", 3, 0)
    line = admin.text("clusterRT", "-a", "2", "-c", "DefaultCluster", "-p", "true", "-m", "room")
    assert line.split("|")[1:4] == ["room", "DefaultCluster", "broker-a"]
    missing = admin.run("clusterRT", "-c", "nowhere")
    assert missing.code == 1 and "there are DefaultCluster" in missing.err


def test_cold_read_thresholds_are_set_shown_and_removed(admin: Admin) -> None:
    admin.text("updateColdDataFlowCtrGroupConfig", "-b", admin.broker, "-g", "slow_readers", "-v", "1024")
    shown = admin.json("getColdDataFlowCtrInfo", "-c", "DefaultCluster")
    assert shown[admin.broker]["configTable"] == {"slow_readers": 1024}  # type: ignore[index]
    said = admin.text("removeColdDataFlowCtrGroupConfig", "-c", "DefaultCluster", "-g", "slow_readers")
    assert said == f"remove broker cold read threshold success, {admin.broker}\n"
    assert admin.json("getColdDataFlowCtrInfo", "-b", admin.broker)[admin.broker]["configTable"] == {}  # type: ignore[index]
    assert "mode: 1" in admin.text("setCommitLogReadAheadMode", "-b", admin.broker, "-m", "1")


def test_a_backlog_is_a_finding_of_the_monitoring(admin: Admin) -> None:
    findings = admin.json("startMonitoring")
    (found,) = [row for row in findings if (row["group"], row["topic"]) == ("slow_readers", "More")]  # type: ignore[attr-defined]
    total = int(found["detail"].partition("undoneMsgsTotal=")[2].partition(",")[0])
    assert found["kind"] == "UNDONE" and total >= 1
    many = admin.json("startMonitoring", "--least", str(total + 1))
    assert ("slow_readers", "More") not in [(row["group"], row["topic"]) for row in many]  # type: ignore[attr-defined]


def test_a_message_is_sent_again(admin: Admin) -> None:
    (found, *_) = admin.json("printMsg", "-t", "More")  # type: ignore[misc]
    (again,) = admin.json("queryMsgById", "-t", "More", "-i", found["msgId"], "-s", "true")  # type: ignore[misc]
    assert again["status"] == "SEND_OK" and again["msgId"] != found["uniqKey"]
    assert admin.json("queryMsgByUniqueKey", "-t", "More", "-i", again["msgId"])["body"] == found["body"]  # type: ignore[index]


def test_messages_of_a_compaction_file_are_shown_up_to_its_unused_rest(admin: Admin, tmp_path: Path) -> None:
    records = b""
    for number in range(3):
        message = MessageExt("Compacted", b"body", {"KEYS": f"k{number}"}, queue_offset=number)
        message.born_host = message.store_host = encode_host("10.0.0.1", 10911)
        records += encode_record(message)
    file = tmp_path / "00000000000000000000"
    file.write_bytes(records + bytes(500))
    shown = admin.json("dumpCompactionLog", "-f", str(file))
    assert [row["keys"] for row in shown] == ["k0", "k1", "k2"]  # type: ignore[attr-defined]
    assert admin.run("dumpCompactionLog", "-f", str(tmp_path / "none")).code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["getControllerMetaData", "-a", "NAMESRV"], "is for a controller, and there is none in this name server"),
        (["electMaster", "-y", "-a", "NAMESRV", "-b", "0", "-bn", "broker-a", "-c", "C"], "is for a controller"),
        (["getSyncStateSet", "-a", "NAMESRV", "-b", "broker-a"], "is for a controller"),
        (["cleanBrokerMetadata", "-y", "-a", "NAMESRV", "-bn", "broker-a", "-l"], "is for a controller"),
        (["getBrokerEpoch", "-b", "broker-a"], "belongs to the controller mode, which MaxQ does not have"),
        (["addBroker", "-c", "BROKER", "-b", "/x"], "belongs to the broker container"),
        (["removeBroker", "-y", "-c", "BROKER", "-b", "C:x:1"], "belongs to the broker container"),
        (["getBrokerLiteInfo", "-b", "BROKER"], "belongs to lite topics"),
        (["getLiteGroupInfo", "-p", "More", "-g", "slow_readers"], "belongs to lite topics"),
        (["checkRocksdbCqWriteProgress", "-c", "DefaultCluster"], "belongs to RocksDB storage"),
        (["rocksDBConfigToJson", "-b", "BROKER"], "belongs to RocksDB storage"),
        (["switchTimerEngine", "-b", "BROKER", "-e", "R"], "there is no RocksDB here"),
    ],
)
def test_what_only_javas_servers_have_is_refused_with_the_reason(
    admin: Admin, server: StandaloneProcess, arguments: list[str], said: str
) -> None:
    places = {"NAMESRV": server.namesrv_address, "BROKER": admin.broker}
    done = admin.run(*(places.get(argument, argument) for argument in arguments))
    assert done.code == 1 and done.out == ""
    assert said in done.err and done.err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["exportMetadataInRocksDB", "-p", "/x", "-t", "topics"], "MaxQ comes without RocksDB"),
        (["rocksDBConfigToJson", "-p", "/x"], "rocksDBConfigToJson with -b or -c"),
        (["rocksDBConfigToJson", "-b", "b:1", "-t", "nonsense"], "must be of topics, subscriptionGroups"),
        (["switchTimerEngine", "-b", "b:1", "-e", "X"], "must be R or F"),
        (["removeBroker", "-y", "-c", "b:1", "-b", "nonsense"], "must be cluster:brokerName:id"),
        (["cleanBrokerMetadata", "-y", "-a", "n:1", "-bn", "b"], "the cluster is needed"),
        (["exportMetadata", "-b", "b:1", "-t", "-g"], "exclude each other"),
        (["deleteTopic", "-t", "More", "-c", "DefaultCluster"], "Nobody can be asked here: give --yes"),
    ],
)
def test_wrong_uses_of_rarer_commands_end_with_2(admin: Admin, arguments: list[str], said: str) -> None:
    done = admin.run(*arguments)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
