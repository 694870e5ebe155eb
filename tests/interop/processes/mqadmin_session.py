"""mqadmin of a release in one JVM, all its commands one after the other, and what of their output may be compared."""

import base64
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.interop.processes import peers
from tests.interop.processes.servers import SMALL_HEAP, java_command

SOURCE = Path(__file__).parent / "java_mqadmin" / "MqAdmin.java"


def compiled(version: str) -> tuple[Path, Path]:
    """(jars, classes) of a release; downloads and compiles what is not there.

    Raises:
        PeerUnavailableError: no Java, no Maven, no network.
    """
    jars = peers.rocketmq_jars(version) if version == peers.ROCKETMQ_VERSION else peers.tools_jars(version)
    classes = peers.peers_folder() / f"mqadmin-{version}"
    made = classes / "MqAdmin.class"
    if not made.exists() or made.stat().st_mtime < SOURCE.stat().st_mtime:
        classes.mkdir(parents=True, exist_ok=True)
        command = ["javac", "-nowarn", "-cp", f"{jars}/*", "-d", str(classes), str(SOURCE)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert done.returncode == 0, done.stdout
    return jars, classes


class MqAdminSession:
    """One JVM."""

    def __init__(self, version: str, home: Path, namesrv: str) -> None:
        jars, classes = compiled(version)
        (home / "conf").mkdir(parents=True, exist_ok=True)
        (home / "conf" / "logback_tools.xml").write_text("<configuration/>")  # which old releases end without
        self._log = open(home / "mqadmin.log", "wb")  # noqa: SIM115
        quiet = (
            "-Drocketmq.client.logUseSlf4j=false",
            f"-Drocketmq.client.logRoot={home}/logs",
            f"-Drocketmq.home.dir={home}",
            "-Djava.security.manager=allow",
        )
        defines = (*SMALL_HEAP, *quiet, f"-Drocketmq.namesrv.addr={namesrv}", "-Duser.timezone=UTC")
        self._process = subprocess.Popen(
            java_command(f"{classes}:{jars}/*", home, defines, "MqAdmin"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            cwd=home,
            text=True,
            encoding="utf-8",
        )
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("@@"):
                return base64.b64decode(line[2:]).decode("utf-8", "replace")
        raise AssertionError(f"mqadmin's JVM ended with {self._process.wait()}; see {self._log.name}")

    def run(self, *arguments: str, seconds: float = 30) -> str:
        """What one command prints, its stack trace included."""
        assert self._process.stdin is not None
        self._process.stdin.write("\t".join((str(int(seconds * 1000)), *arguments)) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()


@dataclass(frozen=True)
class Step:
    """One command line.

    Attributes:
        view: how its output is compared: `lines`, or only `keys` (what stands before `=` or `:`), `heads` (column
            heads) or `answers` (what it says in words; not its numbers).
        again: run until this is in the output, for what servers tell a little later.
    """

    arguments: tuple[str, ...]
    view: str = "lines"
    seconds: float = 30
    again: str = ""
    label: str = ""

    @property
    def command(self) -> str:
        return self.arguments[0]

    @property
    def name(self) -> str:
        return self.label or self.command


def step(text: str, *more: str, view: str = "lines", seconds: float = 30, again: str = "", label: str = "") -> Step:
    """`text` is split at blanks; `more` are arguments with blanks in them."""
    return Step((*text.split(), *more), view, seconds, again, label)


def steps(broker: str, folder: Path, offset_id: str, unique_key: str, client_id: str) -> Iterator[Step]:
    """Every command of mqadmin 5.5.0, in an order in which each finds what it needs.

    Args:
        broker: host:port.
        folder: for files that commands read and write.
        offset_id, unique_key: of a message with key K0 at offset 0 of queue 0 of topic Alpha, which is traced.
        client_id: of a running member of group CG_live of topic Live; PG_live has a producer.
    """
    (folder / "topics.json").write_text('[{"topicName":"FromList","readQueueNums":1,"writeQueueNums":1,"perm":6}]')
    (folder / "groups.json").write_text('[{"groupName":"CG_list"}]')
    at, cluster, alpha = f"-b {broker}", "-c DefaultCluster", "-t Alpha"
    yield step(f"updateTopic {cluster} -t Beta -r 2 -w 2 -o true")
    yield step(f"updateTopic {at} -t Gamma -r 1 -w 1 -p 6 -a +message.type=FIFO")
    yield step(f"updateTopicList {at} -f {folder}/topics.json")
    yield step(f"updateTopicPerm {at} -t Gamma -p 4", again="from 6 to 4")
    yield step("topicRoute -t Alpha")
    yield step("topicRoute -t Alpha -l", label="topicRoute -l")
    yield step("topicRoute -t Nowhere", label="topicRoute of no topic", view="answers")
    yield step(f"topicStatus {alpha}")
    yield step("topicClusterList -t Alpha")
    yield step("topicList", again="FromList")
    yield step("topicList -c", label="topicList -c")
    yield step("updateOrderConf -t Beta -m get")
    yield step("updateOrderConf -t Beta -m delete", label="updateOrderConf delete")
    yield step(f"allocateMQ {alpha} -i 10.0.0.1")
    yield step("updateStaticTopic -t Static -qn 4 -b broker-a", view="answers")
    yield step("remappingStaticTopic -t Static -b broker-a", view="answers")
    yield step(f"updateSubGroup {cluster} -g CG_made -r 5 -q 2 -p", '{"type":"CUSTOMIZED"}')
    yield step(f"updateSubGroupList {at} -f {folder}/groups.json")
    yield step(f"setConsumeMode {at} -t Alpha -g CG_made -m POP -q 1")
    yield step("getConsumerConfig -g CG_made", again="retryMaxTimes")
    yield step("consumerProgress -g CG_live", again="Live ")
    yield step("consumerProgress", label="consumerProgress of all", view="heads")
    yield step("consumerProgress -g CG_nobody", label="consumerProgress of nobody", view="answers")
    yield step("consumerStatus -g CG_live", again="Same subscription")
    yield step(f"consumerStatus -g CG_live -i {client_id}", label="consumerStatus -i", view="heads")
    yield step("consumerConnection -g CG_live", again="CONSUME_PASSIVELY")
    yield step("producerConnection -g PG_live -t Live", again="0001", view="answers")
    yield step(f"producer {at}", view="answers")
    yield step(f"updateBrokerConfig {at} -k fileReservedTime -v 71")
    yield step(f"updateBrokerConfig {at} -k brokerConfigPath -v /x", label="updateBrokerConfig refused", view="answers")
    yield step(f"getBrokerConfig {at}", view="keys")
    yield step(f"getBrokerConfig {cluster}", label="getBrokerConfig -c", view="keys")
    yield step(f"brokerStatus {at}", view="keys")
    yield step(f"brokerConsumeStats {at}", view="heads")
    yield step(f"cleanExpiredCQ {at}")
    yield step(f"cleanUnusedTopic {at}")
    yield step(f"deleteExpiredCommitLog {at}")
    yield step(f"resetMasterFlushOffset {at} -o 0")
    yield step("getBrokerEpoch -b broker-a", view="answers")
    yield step(f"updateColdDataFlowCtrGroupConfig {at} -g CG_made -v 1024")
    yield step(f"getColdDataFlowCtrInfo {at}", view="keys")
    yield step(f"removeColdDataFlowCtrGroupConfig {at} -g CG_made")
    yield step(f"setCommitLogReadAheadMode {at} -m 1")
    yield step(f"switchTimerEngine {at} -e F")
    yield step("sendMsgStatus -b broker-a -s 16 -c 2", view="answers")
    yield step("clusterList", view="heads")
    yield step("clusterList -m", label="clusterList -m", view="heads")
    yield step("clusterRT -a 2 -s 16 -i 5", seconds=6, view="heads")
    yield step(f"queryMsgById {alpha} -i {offset_id}")
    yield step(f"queryMsgById {alpha} -i {'0' * 32}", label="queryMsgById of no message", view="answers")
    yield step(f"queryMsgByKey {alpha} -k K0", view="answers")
    yield step(f"queryMsgByUniqueKey {alpha} -i {unique_key}")
    yield step(f"queryMsgByOffset {alpha} -b broker-a -i 0 -o 0")
    yield step(f"queryMsgTraceById -i {unique_key}", again="Pub", view="answers")
    yield step(f"printMsg {alpha} -d true", view="answers")
    yield step(f"printMsgByQueue {alpha} -a broker-a -i 0 -f true")
    yield step(f"checkMsgSendRT {alpha} -a 2 -s 16", view="heads")
    yield step(f"sendMessage {alpha} -p hello -k K9 -c tag -b broker-a -i 0")
    yield step(f"consumeMessage {alpha} -b broker-a -i 0 -o 0 -c 1", view="answers")
    yield step(f"dumpCompactionLog -f {folder}/none", view="answers")
    yield step("cloneGroupOffset -s CG_live -d CG_made -t Live -o true")
    yield step(f"resetOffsetByTime -g CG_offline {alpha} -s 0", view="heads")
    yield step(f"skipAccumulatedMessage -g CG_offline {alpha}", view="heads")
    yield step("updateKvConfig -s NS -k key -v value")
    yield step("deleteKvConfig -s NS -k key")
    yield step("wipeWritePerm -b broker-a", view="answers")
    yield step("addWritePerm -b broker-a", view="answers")
    yield step("getNamesrvConfig", view="keys")
    yield step("updateNamesrvConfig -k orderMessageEnable -v true")
    yield step(f"queryCq {alpha} -q 0 -i 0 -c 1 {at}", view="keys")
    yield step(f"statsAll {alpha}", view="heads")
    yield step(f"exportMetadata {at} -t -f {folder}/export", label="exportMetadata -b")
    yield step(f"exportMetadata {cluster} -f {folder}/export")
    yield step(f"exportConfigs {cluster} -f {folder}/export")
    yield step(f"exportMetrics {cluster} -f {folder}/export")
    yield step(f"exportMetadataInRocksDB -p {folder}/none -t topics -j true", view="answers")
    yield step(f"exportPopRecord {at}", view="answers")
    yield step(f"rocksDBConfigToJson {at} -t topics", view="answers")
    yield step(f"checkRocksdbCqWriteProgress {cluster} -t Alpha -n $NAMESRV", view="answers")
    yield step(f"haStatus {at}", view="heads")
    yield step("getSyncStateSet -a $NAMESRV -b broker-a", view="answers")
    yield step("getControllerMetaData -a $NAMESRV", view="answers")
    yield step("getControllerConfig -a $NAMESRV", view="answers")
    yield step("updateControllerConfig -a $NAMESRV -k k -v v", view="answers")
    yield step(f"electMaster -a $NAMESRV -b 0 -bn broker-a {cluster}", view="answers")
    yield step(f"cleanBrokerMetadata -a $NAMESRV -bn broker-a {cluster}", view="answers")
    yield step(f"addBroker -c {broker} -b /x", view="answers")
    yield step(f"removeBroker -c {broker} -b DefaultCluster:x:1", view="answers")
    yield step(f"createUser {at} -u user -p password", view="answers")
    yield step(f"updateUser {at} -u user -p other", view="answers")
    yield step(f"getUser {at} -u user", view="answers")
    yield step(f"listUser {at}", view="answers")
    yield step(f"copyUser -f {broker} -t {broker} -u user", view="answers")
    yield step(f"createAcl {at} -s User:user -r Topic:Alpha -a Pub -d ALLOW", view="answers")
    yield step(f"updateAcl {at} -s User:user -r Topic:Alpha -a Sub -d ALLOW", view="answers")
    yield step(f"getAcl {at} -s User:user", view="answers")
    yield step(f"listAcl {at}", view="answers")
    yield step(f"copyAcl -f {broker} -t {broker} -s User:user", view="answers")
    yield step(f"deleteAcl {at} -s User:user -r Topic:Alpha", view="answers")
    yield step(f"deleteUser {at} -u user", view="answers")
    yield step(f"getBrokerLiteInfo {at}", view="answers")
    yield step("getParentTopicInfo -p Alpha", view="answers")
    yield step("getLiteTopicInfo -p Alpha -l lite", view="answers")
    yield step("getLiteClientInfo -p Alpha -g CG_made -c client", view="answers")
    yield step("getLiteGroupInfo -p Alpha -g CG_made", view="answers")
    yield step("triggerLiteDispatch -p Alpha -g CG_made", view="answers")
    yield step(f"deleteSubGroup {cluster} -g CG_made")
    yield step(f"deleteTopic {cluster} -t Gamma")
    yield step("startMonitoring", seconds=3)


def old_steps(broker: str) -> Iterator[Step]:
    """The commands of 4.9.8 that 5.5.0 has no more: those of ACL 1.0."""
    at = f"-b {broker}"
    yield step(f"updateAclConfig {at} -a accessKey1 -s secretKey1", view="answers")
    yield step(f"updateGlobalWhiteAddr {at} -g 10.10.103.*", view="answers")
    yield step(f"clusterAclConfigVersion {at}", view="answers")
    yield step(f"deleteAccessConfig {at} -a accessKey1", view="answers")


def said(session: MqAdminSession, one: Step, namesrv: str) -> str:
    """Run a step; while it may still become right, again."""
    arguments = [argument.replace("$NAMESRV", namesrv) for argument in one.arguments]
    end = time.monotonic() + 20
    while True:
        text = session.run(*arguments, seconds=one.seconds)
        if not one.again or one.again in text or time.monotonic() > end:
            return text
        time.sleep(0.2)


_FRAME = re.compile(r"\s+at [\w.$/<>]+\(.*\)|\s*\.\.\. \d+ more")
_NOISE = re.compile(r"RocketMQLog|^OpenJDK|^WARNING:|^SLF4J|^\s*$")


def comparable(text: str, view: str, names: dict[str, str]) -> list[str]:
    """The lines of an output without what differs from run to run.

    Args:
        names: what stands for what, such as an address for `BROKER`.
    """
    for name, symbol in names.items():
        text = text.replace(name, symbol)
    lines = [line.rstrip() for line in text.splitlines() if not _FRAME.fullmatch(line) and not _NOISE.search(line)]
    if view == "heads":
        lines = [line for line in lines if "#" in line] or lines
        lines = [" ".join(re.findall(r"#[\w()/ .]*[\w)]|[A-Z]\w+:", line)) for line in lines]
    elif view == "keys":
        lines = sorted(line.partition("=")[0].partition(":")[0].strip(' ",') for line in lines)
    else:
        lines = [_plain(line, numbers=view == "answers") for line in lines]
    return [line for line in dict.fromkeys(lines) if line]


def _plain(line: str, *, numbers: bool) -> str:
    line = re.sub(r"\d{4}-\d\d-\d\d[ T#]\d\d:\d\d:\d\d([,.:]\d+)?", "TIME", line)
    line = re.sub(r"\b\d{13}\b", "MILLIS", line)
    line = re.sub(r"\b([0-9A-F]{56}|[0-9A-F]{32})\b", "ID", line)
    line = re.sub(r"(request type \d+ not supported).*", r"\1", line)  # ours say why
    line = re.sub(r"127\.0\.0\.1:\d+|/127\.0\.0\.1:\d+", "HOST", line)
    line = re.sub(r"\b\d+\.\d+\b", "N.N", line)
    if numbers:
        line = re.sub(r"\b\d+(ms)?\b", r"N\1", line)
    line = re.sub(r"\{([^{}]*=[^{}]*)\}", _sorted_members, line)  # in the order of a hash table
    return re.sub(r"\s+", " ", line).strip()


def _sorted_members(match: re.Match[str]) -> str:
    return "{" + ", ".join(sorted(match[1].split(", "))) + "}"
