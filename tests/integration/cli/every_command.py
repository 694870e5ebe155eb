"""Every command of the command line, with arguments that make it work, and what they need.

The tables have a line for each command of the tree; a test that walks the tree fails when a command has none. Words in
braces stand for what `Surroundings` has.
"""

import json
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from maxq.api import LitePullConsumer, Message, Producer
from maxq.cli.app import group
from maxq.testing.server_process import StandaloneProcess
from tests.integration.cli.harness import maxq

TOPIC, GROUP = "Every", "G_every"

#: What ends with 0 when its work is done.
ENDING: Final = """
produce Every --tag t
consume Every --group {group} --idle 0
admin updateTopic -c DefaultCluster -t Every{n}
admin updateTopicList -c DefaultCluster -f {topics}
admin updateTopicPerm -t Every -p 6 -c DefaultCluster
admin deleteTopic -t EveryGone -c DefaultCluster -y
admin topicList
admin topicRoute -t Every
admin topicStatus -t Every
admin topicClusterList -t Every
admin updateOrderConf -t EveryOrder -m put -v broker-a:4
admin allocateMQ -t Every -i 127.0.0.1,127.0.0.2
admin updateStaticTopic -t EveryStatic{n} -qn 4 -c DefaultCluster
admin remappingStaticTopic -t EveryMoved -c DefaultCluster -fr true -y
admin updateSubGroup -g G_every3 -c DefaultCluster
admin updateSubGroupList -f {groups} -c DefaultCluster
admin deleteSubGroup -g G_every_gone -c DefaultCluster -y
admin getConsumerConfig -g G_every
admin consumerProgress
admin producer -b {broker}
admin setConsumeMode -t Every -g G_every -m PULL -c DefaultCluster
admin resetOffsetByTime -g G_every -t Every -s -1 -y
admin skipAccumulatedMessage -g G_every -t Every -y
admin cloneGroupOffset -s G_every -d G_every3 -t Every -o false -y
admin queryMsgById -i {offset_id} -t Every
admin queryMsgByKey -t Every -k k1
admin queryMsgByUniqueKey -i {unique_id} -t Every
admin queryMsgByOffset -t Every -b broker-a -i {queue} -o 0
admin printMsg -t Every
admin printMsgByQueue -t Every -a broker-a -i {queue} -p true
admin consumeMessage -t Every -c 1
admin sendMessage -t Every -p text
admin queryCq -t Every -q {queue} -i 0 -b {broker}
admin sendMsgStatus -b broker-a -c 1
admin checkMsgSendRT -t Every -a 2
admin clusterRT -a 1 -s 16
admin clusterList
admin brokerStatus -b {broker}
admin getBrokerConfig -b {broker}
admin updateBrokerConfig -b {broker} -k flushIntervalCommitLog -v 500
admin brokerConsumeStats -b {broker}
admin statsAll
admin cleanExpiredCQ -b {broker}
admin cleanUnusedTopic -b {broker} -y
admin deleteExpiredCommitLog -b {broker} -y
admin getColdDataFlowCtrInfo -b {broker}
admin updateColdDataFlowCtrGroupConfig -b {broker} -g G_every -v 1000
admin removeColdDataFlowCtrGroupConfig -b {broker} -g G_every
admin setCommitLogReadAheadMode -b {broker} -m 0
admin exportMetadata -c DefaultCluster -f {folder}
admin exportConfigs -c DefaultCluster -f {folder}
admin exportMetrics -c DefaultCluster -f {folder}
admin exportPopRecord -b {broker}
admin why-slow {broker}
admin purgeTopic -t EveryPurged -c DefaultCluster -y
admin haStatus -b {broker}
admin resetMasterFlushOffset -b {broker} -o 0 -y
admin createUser -u u{n} -p p -b {broker}
admin updateUser -u every -p p -b {broker}
admin deleteUser -u nobody -b {broker} -y
admin getUser -u every -b {broker}
admin listUser -b {broker}
admin copyUser -f {broker} -t {broker}
admin createAcl -s User:every -r Topic:T{n} -a PUB -d ALLOW -b {broker}
admin updateAcl -s User:every -r Topic:* -a PUB -d ALLOW -b {broker}
admin deleteAcl -s User:every -r Topic:T{n} -b {broker}
admin getAcl -s User:every -b {broker}
admin listAcl -b {broker}
admin copyAcl -f {broker} -t {broker}
admin dumpCompactionLog -f {topics}
admin switchTimerEngine -e F -b {broker}
admin startMonitoring
admin getNamesrvConfig
admin updateNamesrvConfig -k orderMessageEnable -v false
admin updateKvConfig -s Every -k k -v v
admin deleteKvConfig -s Every -k k
admin wipeWritePerm -b broker-a -y
admin addWritePerm -b broker-a
dlq list
dlq show G_every
dlq export G_every -f {folder}/letters
dlq redrive G_every --dry-run
timer list -b {broker}
timer inspect {timer_id} -b {broker}
transaction list -b {broker}
store messages {store}
store offsets {store}
store check {store}
store recover {store}
store rehearse {store}
context add every{n} -n 127.0.0.1
context list
context show
context use --none
schema admin topicList
shell
completion bash
"""

#: What is refused, each in one line, because something is not there: other servers, a group's member, a rarer store.
REFUSED: Final = """
context remove nobody
pipeline deliver Every
dledger --group g --peers n0-127.0.0.1:1 append text
dledger --group g --peers n0-127.0.0.1:1 get 0
dledger --group g --peers n0-127.0.0.1:1 status
dledger --group g --peers n0-127.0.0.1:1 transfer n0
dledger --group g --id n0 --peers n0-127.0.0.1:1 --base-dir {folder} bless
admin consumerConnection -g G_every
admin consumerStatus -g G_every
admin producerConnection -g PG_every -t Every
admin queryMsgTraceById -i {unique_id}
admin rocksDBConfigToJson -b {broker} -t topics
admin exportMetadataInRocksDB -p {folder} -t topics
admin checkRocksdbCqWriteProgress -c DefaultCluster
admin dledgerStatus -b {broker}
admin dledgerTransfer -b {broker} --to n0 -y
admin getBrokerEpoch -b {broker}
admin getSyncStateSet -a {namesrv} -b broker-a
admin getControllerMetaData -a {namesrv}
admin getControllerConfig -a {namesrv}
admin updateControllerConfig -a {namesrv} -k k -v v
admin electMaster -a {namesrv} -b 1 -bn broker-a -c DefaultCluster -y
admin cleanBrokerMetadata -a {namesrv} -bn broker-a -c DefaultCluster -y
admin addBroker -c {broker} -b {topics}
admin removeBroker -c {broker} -b DefaultCluster:broker-a:0 -y
admin getBrokerLiteInfo -b {broker}
admin getParentTopicInfo -p Every
admin getLiteTopicInfo -p Every -l l
admin getLiteClientInfo -p Every -g G_every -c c
admin getLiteGroupInfo -p Every -g G_every
admin triggerLiteDispatch -p Every -g G_every
timer cancel 7F000001000000000000000000000000 -b {broker}
transaction inspect 7F000001000000000000000000000000
transaction resume 7F000001000000000000000000000000
"""

#: What goes on until it is ended.
ENDLESS: Final = """
standalone --store {folder}/standalone --namesrv-port 0 --broker-port 0
namesrv -p 0
broker -n {namesrv} --set listenPort=0 --set storePathRootDir={folder}/broker
proxy -n {namesrv} --port {free_port}
dledger --group g --id n0 --peers n0-127.0.0.1:{free_port} --base-dir {folder}/dledger
tail Every
consume Every --group G_every_reads
admin clusterList -i 1
"""

#: Commands that start Spark; each takes seconds.
ON_SPARK: Final = """
sql {query}
pipeline archive run {folder}/archive --topic Every
pipeline archive verify {folder}/archive
pipeline archive compact {folder}/archive
pipeline archive table {folder}/archive every
pipeline audit {store}
pipeline rebuild {copy}
pipeline replay --store {store} --to EveryAgain
pipeline trace
pipeline stats
pipeline dlq show
pipeline dlq export {folder}/letters
pipeline dlq redrive G_every --record {folder}/record
"""

#: What some of them need.
_MADE: Final = """\
admin updateStaticTopic -t EveryMoved -qn 4 -c DefaultCluster
admin createUser -u every -p p -b {broker}
admin createAcl -s User:every -r Topic:* -a PUB -d ALLOW -b {broker}"""


#: Name servers at which that was made.
_PREPARED: Final[set[str]] = set()


def commands() -> Iterator[tuple[str, ...]]:
    """The words of every command there is."""
    yield from _below((), group)


def _below(words: tuple[str, ...], command: Any) -> Iterator[tuple[str, ...]]:
    names = command.list_commands(None) if hasattr(command, "list_commands") else ()
    if not names or command.invoke_without_command:
        yield words
    for name in names:
        yield from _below((*words, name), command.get_command(None, name))


def command_of(line: str) -> tuple[str, ...]:
    """The words of a line of a table that name its command; a member of a DLedger group stands between them."""
    words = line.split()
    if words[0] == "dledger":
        named = [word for word in words[1:] if word in ("append", "get", "status", "transfer", "bless")]
        return ("dledger", *named)
    command: Any = group
    found: list[str] = []
    for word in words:
        if word not in (command.list_commands(None) if hasattr(command, "list_commands") else ()):
            break
        found.append(word)
        command = command.get_command(None, word)
    return tuple(found)


def takes_json(words: tuple[str, ...]) -> bool:
    """Has the command an option --json?"""
    command: Any = group
    for word in words:
        command = command.get_command(None, word)
    return any("--json" in parameter.opts for parameter in command.params)


class Surroundings:
    """A running server, with whatever the commands ask for, and a store that nobody uses.

    Args:
        server: gets topics, groups and messages.
        folder: for files.
    """

    def __init__(self, server: StandaloneProcess, folder: Path) -> None:
        self._folder = folder
        self._names = {
            "namesrv": server.namesrv_address,
            "broker": server.broker_address,
            "group": GROUP,
            "query": f"SELECT count(*) AS n FROM {TOPIC}",
            "topics": self._json("topics", [{"topicName": "EveryOfList"}]),
            "groups": self._json("groups", [{"groupName": "G_every_of_list"}]),
        }
        self._send(server.namesrv_address)
        if server.namesrv_address not in _PREPARED:  # the server is that of all files that one process runs
            _PREPARED.add(server.namesrv_address)
            for line in _MADE.split("\n"):
                made = maxq(*line.format_map(self._names).split(), namesrv=server.namesrv_address)
                assert made.code == 0, made.err
        self._names["store"] = str(self._store())
        self._runs = 0

    def _json(self, name: str, value: Any) -> str:
        path = self._folder / f"{name}.json"
        path.write_text(json.dumps(value))
        return str(path)

    def _send(self, namesrv: str) -> None:
        with Producer("PG_every", namesrv) as producer:
            for topic in (TOPIC, "EveryPurged", "%DLQ%G_every"):
                for number in range(3):
                    sent = producer.send(Message(topic, b"body %d" % number, {"KEYS": f"k{number}", "TAGS": "t"}))
                    if topic == TOPIC:
                        self._names.update(unique_id=sent.msg_id, offset_id=sent.offset_msg_id)
                        self._names["queue"] = str(sent.message_queue.queue_id)
            later = Message(TOPIC, b"later")
            later.deliver_time_ms = int(time.time() * 1000) + 3_600_000
            self._names["timer_id"] = producer.send(later).msg_id
        with LitePullConsumer(GROUP, namesrv) as consumer:
            consumer.subscribe(TOPIC)
            while not consumer.poll(100):
                pass
            consumer.commit()

    def _store(self) -> Path:
        """The store of a server that has ended."""
        with StandaloneProcess(folder=self._folder / "ended") as server:
            with Producer("PG_every", server.namesrv_address) as producer:
                producer.send_many(Message("Stored", b"body", {"KEYS": "k"}) for _ in range(10))
            server.stop()
            return server.store

    def lines(self, table: str) -> Iterator[tuple[str, list[str]]]:
        """Each line of a table, and its words with everything filled in, fresh folders and ports among it."""
        for line in table.split("\n"):
            if line:
                yield line, self.words(line)

    def words(self, line: str) -> list[str]:
        self._runs += 1
        folder = self._folder / f"run{self._runs}"
        folder.mkdir()
        names = {**self._names, "n": self._runs, "folder": folder}
        if "{copy}" in line:
            names["copy"] = shutil.copytree(self._names["store"], folder / "copy")
        if "{free_port}" in line:
            names["free_port"] = free_port()
        return [word.format_map(names) for word in line.split()]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def input_of(line: str) -> str:
    """What a command reads."""
    return "topicList\n" if line == "shell" else "a line\nanother\n"
