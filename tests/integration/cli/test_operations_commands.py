"""`maxq admin why-slow` and `purgeTopic` against a running server."""

import json

from maxq.testing.server_process import StandaloneProcess
from tests.integration.cli.harness import maxq


def test_why_slow_and_purge_topic(server: StandaloneProcess) -> None:
    namesrv, broker = server.namesrv_address, server.broker_address
    text = "".join(json.dumps({"body": f"b{number}"}) + "\n" for number in range(12))
    assert maxq("admin", "updateTopic", "-b", broker, "-t", "Doomed", "-r", "2", "-w", "2", namesrv=namesrv).code == 0
    assert maxq("produce", "Doomed", "--json", text=text, namesrv=namesrv).code == 0

    slow = maxq("admin", "why-slow", broker, namesrv=namesrv)
    assert slow.code == 0, slow.err
    assert slow.out.splitlines()[0].split() == ["#Stage", "#Share", "#p50", "us", "#p99", "us", "#Max", "us"]
    assert [line.split()[0] for line in slow.out.splitlines()[1:8]] == [
        "queue", "receive", "append", "flush", "replicate", "answer", "total",
    ]  # fmt: skip

    dry = maxq("admin", "purgeTopic", "-t", "Doomed", "-b", broker, "--dryRun", "--json", namesrv=namesrv)
    assert dry.code == 0 and json.loads(dry.out)["brokers"][broker]["messages"] == 12
    unasked = maxq("admin", "purgeTopic", "-t", "Doomed", "-b", broker, namesrv=namesrv)
    assert unasked.code == 2 and "Hide 12 messages of topic Doomed on 1 brokers for good?" in unasked.err
    done = maxq("admin", "purgeTopic", "-t", "Doomed", "-b", broker, "--yes", namesrv=namesrv)
    assert done.code == 0, done.err
    assert sum(int(line.split()[5]) for line in done.out.splitlines()[1:3]) == 12
    status = maxq("admin", "topicStatus", "-t", "Doomed", "--json", namesrv=namesrv)
    queues = json.loads(status.out)
    assert all(queue["minOffset"] == queue["maxOffset"] for queue in queues)


def test_quotas_of_groups_and_topics_are_set_by_their_attributes(server: StandaloneProcess) -> None:
    namesrv, broker = server.namesrv_address, server.broker_address
    quota = "+quota.messages=5,+quota.bytes=1000"
    done = maxq("admin", "updateSubGroup", "-b", broker, "-g", "Slow", "--attributes", quota, namesrv=namesrv)
    assert done.code == 0 and "quota.messages" in done.out, done.err
    done = maxq("admin", "updateTopic", "-b", broker, "-t", "Limited", "-a", "+retention.ms=1", namesrv=namesrv)
    assert done.code == 1 and "retention.ms=1: value is not in range(1000" in done.err
