"""A broker's life: registration, restart, failed starts, information about itself."""

import asyncio
import contextlib
import errno
import threading
from pathlib import Path, PurePath

import pytest

import maxq
from maxq.broker.controller import BrokerController, resolve
from maxq.codes import RequestCode, ResponseCode
from maxq.config import NamesrvConfig, NamesrvSettings, NettyServerConfig
from maxq.config.netty_client_config import NettyClientConfig
from maxq.config.settings import BrokerSettings
from maxq.errors import BrokerEndedError, ConfigError, RemotingError, StoreFailedError, StoreRefusedError
from maxq.namesrv.controller import NamesrvController
from maxq.protocol.body.route import KVTable, TopicRouteData
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.remoting.client import RemotingClient
from maxq.runtime.files.system import SystemClock, SystemDisk, SystemMappedRegion, SystemRng
from maxq.testing.simulation import SimWorld, run_simulation
from tests.integration.broker.conftest import Start
from tests.integration.broker.harness import TIMEOUT_MS, RunningBroker, small_store, until
from tests.interop.processes.servers import free_port_base


async def route(broker: RunningBroker, namesrv: str, topic: str) -> TopicRouteData | None:
    request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    answer = await broker.client.invoke(namesrv, request, TIMEOUT_MS)
    return TopicRouteData.decode(answer.body_bytes) if answer.code == 0 else None


async def until_routed(broker: RunningBroker, namesrv: str, topic: str) -> TopicRouteData:
    async def is_routed() -> bool:
        return await route(broker, namesrv, topic) is not None

    await until(is_routed)
    found = await route(broker, namesrv, topic)
    assert found is not None
    return found


# ---- registration -------------------------------------------------------------------------------------------------


async def test_started_broker_is_routed_to_and_a_stopped_one_is_not(start_broker: Start, namesrv: str) -> None:
    broker = await start_broker(namesrvAddr=namesrv)
    found = await route(broker, namesrv, "TBW102")
    assert found is not None
    assert found.broker_datas[0].broker_addrs == {0: broker.address}
    assert broker.controller.registration.registered_with == [namesrv]
    await broker.controller.shutdown()
    assert await route(broker, namesrv, "TBW102") is None


async def test_new_topic_is_routed_to_without_waiting_for_the_timer(start_broker: Start, namesrv: str) -> None:
    broker = await start_broker(namesrvAddr=namesrv)
    await broker.send("Fresh", b"x")
    found = await until_routed(broker, namesrv, "Fresh")
    assert (found.queue_datas[0].read_queue_nums, found.queue_datas[0].perm) == (4, 6)


async def test_retry_topic_of_a_heartbeat_is_routed_to(start_broker: Start, namesrv: str) -> None:
    broker = await start_broker(namesrvAddr=namesrv)
    broker.create_topic("T")
    await broker.heartbeat("G", {"T": "*"})
    found = await until_routed(broker, namesrv, "%RETRY%G")
    assert found.queue_datas[0].read_queue_nums == 1


async def test_changed_broker_permission_reaches_the_routes(start_broker: Start, namesrv: str) -> None:
    broker = await start_broker(namesrvAddr=namesrv)
    broker.create_topic("T")
    await until_routed(broker, namesrv, "T")
    body = b"brokerPermission=4"
    assert (await broker.invoke(RemotingCommand(RequestCode.UPDATE_BROKER_CONFIG, body=body))).code == 0

    async def is_read_only() -> bool:
        return (await until_routed(broker, namesrv, "T")).queue_datas[0].perm == 4

    await until(is_read_only)


async def test_broker_without_a_reachable_name_server_serves_all_the_same(start_broker: Start) -> None:
    broker = await start_broker(namesrvAddr="127.0.0.1:1;127.0.0.1:2")
    broker.create_topic("T")
    assert (await broker.send("T", b"x")).code == 0
    assert broker.controller.registration.registered_with == []


# ---- stopping and starting again ----------------------------------------------------------------------------------


async def test_messages_topics_and_offsets_survive_a_restart(start_broker: Start) -> None:
    broker = await start_broker()
    broker.create_topic("T", queues=3)
    for i in range(20):
        await broker.send("T", b"m%d" % i, KEYS=f"k{i}", UNIQ_KEY=f"U{i}")
    await broker.pull("T", 8, sys_flag=5, commit_offset=7)
    await broker.stop()
    assert not (broker.folder / "abort").exists()
    again = await start_broker()
    assert again.controller.store.report.clean_exit
    assert [message.body for message in await again.pull_messages("T")] == [b"m%d" % i for i in range(20)]
    assert again.controller.offsets.query_offset("G", "T", 0) == 7
    config = again.controller.topics.select_topic_config("T")
    assert config is not None and config.read_queue_nums == 3
    assert (await again.send("T", b"more")).ext["queueOffset"] == "20"


async def test_shutdown_answers_sends_that_wait_for_the_disk(start_broker: Start) -> None:
    broker = await start_broker(flushDiskType="SYNC_FLUSH")
    broker.create_topic("T")
    sends = [asyncio.create_task(broker.send("T", b"x", DELAY="0")) for _ in range(50)]
    await until(lambda: broker.controller.store.max_physical_offset > 0)
    await broker.controller.shutdown()
    done = await asyncio.gather(*sends, return_exceptions=True)
    answered = [reply for reply in done if isinstance(reply, RemotingCommand)]
    assert answered and all(reply.code == 0 for reply in answered)


async def test_shutdown_twice_is_one_shutdown(start_broker: Start) -> None:
    broker = await start_broker()
    broker.create_topic("T")
    assert (await broker.send("T", b"kept")).code == 0
    await broker.controller.shutdown()
    files = {path: path.read_bytes() for path in broker.folder.rglob("*") if path.is_file()}
    await broker.controller.shutdown()
    assert {path: path.read_bytes() for path in broker.folder.rglob("*") if path.is_file()} == files
    again = await start_broker()  # the folder is nobody's
    assert (await again.send("T", b"more")).ext["queueOffset"] == "1"


# ---- failed starts ------------------------------------------------------------------------------------------------


def controller_of(folder: Path, **settings: str) -> BrokerController:
    given, _ = BrokerSettings.from_properties(small_store(folder) | settings, source="test")
    return BrokerController(given, disk=SystemDisk(), clock=SystemClock(), rng=SystemRng())


async def test_port_in_use_leaves_the_store_free_for_the_next_try(tmp_path: Path, start_broker: Start) -> None:
    first = await start_broker()
    second = controller_of(tmp_path / "other", listenPort=str(first.controller.port))
    with pytest.raises(OSError) as failure:
        await second.start()
    assert failure.value.errno == errno.EADDRINUSE
    third = controller_of(tmp_path / "other")
    await third.start()
    await third.shutdown()


@pytest.mark.parametrize("lock_is_deleted", [False, True])
async def test_a_second_broker_on_a_store_is_refused_and_touches_nothing(
    tmp_path: Path, start_broker: Start, lock_is_deleted: bool
) -> None:
    first = await start_broker()
    await first.send("T", b"x")
    await first.controller.topics.persisted()
    await first.controller.store.flusher.flush_all()
    (first.folder / "config" / "topics.json").write_bytes(b"half a tab")
    if lock_is_deleted:  # as who takes it for what a crash has left
        (first.folder / "lock").unlink()
    config = first.folder / "config"
    before = {path: path.read_bytes() for path in config.iterdir()}
    for settings in ({}, {"brokerName": "other"}):
        with pytest.raises(StoreRefusedError, match="lock is locked: another broker runs on this store"):
            await controller_of(first.folder, **settings).start()
    assert {path: path.read_bytes() for path in config.iterdir()} == before


async def test_a_store_whose_table_of_topics_is_lost_is_refused(start_broker: Start) -> None:
    """Its messages would be there, and nobody could read them; slaves would forget the topics, too."""
    broker = await start_broker()
    await broker.send("T", b"x")
    await broker.controller.shutdown()
    config = broker.folder / "config"
    for name in ("topics.json", "topics.json.bak"):
        (config / name).unlink(missing_ok=True)
    advice = (
        r"topics.json and topics.json.bak are missing, but .* messages of 1 topics \(T\).*write {} into topics.json"
    )
    with pytest.raises(StoreRefusedError, match=advice):
        await controller_of(broker.folder).start()
    assert not (config / "topics.json").exists()
    (config / "topics.json").write_text("{}")
    without = controller_of(broker.folder)
    await without.start()
    await without.shutdown()


@pytest.mark.parametrize(("role", "is_newer"), [("SLAVE", True), ("SLAVE", False), ("ASYNC_MASTER", True)])
async def test_a_slave_that_becomes_the_master_serves_topics_of_which_it_has_messages_and_has_not_heard(
    start_broker: Start, role: str, is_newer: bool
) -> None:
    """If all its messages are older than the table, the topic was deleted: a Java master writes no record of that."""
    is_found = role == "SLAVE" and is_newer
    broker = await start_broker()
    before = broker.controller.topics.data_version.copy()
    broker.create_topic("Batches", attributes={"+queue.type": "BatchCQ"})
    for queue_id in (0, 2):
        await broker.send("T", b"%d" % queue_id, queue_id=queue_id)
        await broker.send("Batches", b"%d" % queue_id, queue_id=queue_id)
    broker.create_topic("Empty")
    await broker.controller.topics.persisted()
    await broker.controller.shutdown()
    owner, topics = broker.folder / "owner.json", broker.folder / "config" / "topics.json"
    owner.write_bytes(owner.read_bytes().replace(b"ASYNC_MASTER", role.encode()))
    table = json_dialect.loads(topics.read_bytes())
    for name in ("T", "Batches", "Empty"):
        del table["topicConfigTable"][name]
    if is_newer:
        table["dataVersion"] = before.to_json()
    topics.write_bytes(json_dialect.dumps(table))
    for _ in range(2):
        broker = await start_broker()
        configs = map(broker.controller.topics.select_topic_config, ("T", "Batches"))
        found = [(config.read_queue_nums, config.attributes) for config in configs if config is not None]
        assert found == ([(3, {}), (3, {"queue.type": "BatchCQ"})] if is_found else [])
        assert "Empty" not in broker.controller.topics.topic_config_table
        code = ResponseCode.SUCCESS if is_found else ResponseCode.TOPIC_NOT_EXIST
        for topic in ("T", "Batches"):
            assert (await broker.pull(topic, queue_id=2)).code == code
        await broker.controller.shutdown()


@pytest.mark.parametrize("has_heard_master", [True, False])
async def test_a_topic_that_a_slave_makes_itself_hides_none_of_which_it_has_not_heard(
    start_broker: Start, *, has_heard_master: bool
) -> None:
    """It does so for consumers while its master is away."""
    broker = await start_broker()
    before = broker.controller.topics.data_version.copy()
    await broker.send("T", b"x", queue_id=2)
    await broker.controller.topics.persisted()
    await broker.controller.shutdown()
    topics = broker.folder / "config" / "topics.json"
    table = json_dialect.loads(topics.read_bytes())
    del table["topicConfigTable"]["T"]
    table["dataVersion"] = before.to_json()
    topics.write_bytes(json_dialect.dumps(table))
    if not has_heard_master:  # it copied the log, and none of the tables
        for name in ("topics.json", "topics.json.bak"):
            (broker.folder / "config" / name).unlink(missing_ok=True)
    for _ in range(2):
        slave = await start_broker(brokerRole="SLAVE", brokerId=1)
        await slave.heartbeat("G", {"T": "*"})
        assert slave.controller.topics.contains_topic("%RETRY%G")
        await slave.controller.shutdown()
    promoted = await start_broker()
    assert promoted.controller.topics.topic_config_table["T"].read_queue_nums == 3
    assert (await promoted.pull("T", queue_id=2)).code == ResponseCode.SUCCESS


async def test_a_new_store_has_its_table_of_topics_from_the_start(start_broker: Start) -> None:
    """A message may be in the log before its topic is in the file, when the power goes."""
    broker = await start_broker()
    assert (broker.folder / "config" / "topics.json").exists()


@pytest.mark.parametrize("name", ["topics.json", "timercheck", "consumerOrderInfo.json"])
async def test_a_file_that_cannot_be_read_is_named_with_what_to_do(start_broker: Start, name: str) -> None:
    broker = await start_broker()
    await broker.send("T", b"x")
    await broker.controller.shutdown()
    file = broker.folder / "config" / name
    file.unlink(missing_ok=True)
    file.mkdir()
    with pytest.raises(StoreRefusedError, match=f"{name}.*(Give this user|Mount it|or set storePathRootDir)"):
        await controller_of(broker.folder).start()


class GuardedDisk(SystemDisk):
    """Notes which tables were read or written while nobody held the store's lock.

    Attributes:
        unguarded: their names.
    """

    def __init__(self, store: Path) -> None:
        super().__init__()
        self._store = store
        self.unguarded: list[str] = []

    def read(self, path: PurePath) -> bytes:
        self._look(path)
        return super().read(path)

    def replace(self, path: PurePath, data: bytes, *, private: bool = False) -> None:
        self._look(path)
        super().replace(path, data, private=private)

    def _look(self, path: PurePath) -> None:
        if path.is_relative_to(self._store) and not self.is_locked(self._store / "lock"):
            self.unguarded.append(path.name)


async def test_nothing_of_a_store_is_read_or_written_but_under_its_lock(tmp_path: Path, start_broker: Start) -> None:
    """Another broker may end, or begin, on it just then: one would have tables that the other changes."""
    disk = GuardedDisk(tmp_path / "store")
    for _ in range(2):
        broker = await start_broker(disk=disk)
        await broker.send("T", b"x")
        broker.create_topic("new")
        await broker.controller.shutdown()
    assert disk.unguarded == []


async def test_start_that_is_cancelled_while_a_name_server_is_silent_leaves_everything_closed(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    address = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    first = controller_of(tmp_path / "store", namesrvAddr=address)
    starting = asyncio.create_task(first.start())
    await asked.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    silent.close()
    second = controller_of(tmp_path / "store")
    await second.start()
    assert second.store.report.clean_exit
    await second.shutdown()


class SlowDisk(SystemDisk):
    """Maps its first file when it is told to go on.

    Attributes:
        begun: somebody wants a file.
    """

    def __init__(self) -> None:
        super().__init__()
        self.begun, self._may_go_on = threading.Event(), threading.Event()

    def map(self, path: PurePath, size: int, *, read_only: bool = False) -> SystemMappedRegion:
        self.begun.set()
        assert self._may_go_on.wait(30)
        return super().map(path, size, read_only=read_only)

    def go_on(self) -> None:
        self._may_go_on.set()


def slow_controller_of(folder: Path, disk: SlowDisk, **settings: str) -> BrokerController:
    given, _ = BrokerSettings.from_properties(small_store(folder) | settings, source="test")
    return BrokerController(given, disk=disk, clock=SystemClock(), rng=SystemRng())


async def test_start_that_is_cancelled_during_recovery_leaves_a_store_that_was_closed(tmp_path: Path) -> None:
    disk = SlowDisk()
    first = slow_controller_of(tmp_path / "store", disk)
    starting = asyncio.create_task(first.start())
    await until(disk.begun.is_set)
    starting.cancel()
    await asyncio.sleep(0)
    assert not starting.done()
    disk.go_on()
    with pytest.raises(asyncio.CancelledError):
        await starting
    second = controller_of(tmp_path / "store")
    await second.start()
    assert second.store.report.clean_exit
    await second.shutdown()


async def test_a_broker_that_is_told_to_end_while_it_starts_does_not_start(tmp_path: Path) -> None:
    disk = SlowDisk()
    first = slow_controller_of(tmp_path / "store", disk)
    starting = asyncio.create_task(first.start())
    await until(disk.begun.is_set)
    ending = asyncio.create_task(first.shutdown())
    await asyncio.sleep(0)
    disk.go_on()
    with pytest.raises(BrokerEndedError, match="told to end while it started"):
        await starting
    await ending
    second = controller_of(tmp_path / "store")
    await second.start()
    assert second.store.report.clean_exit
    await second.shutdown()


async def test_a_broker_that_is_told_to_end_while_name_servers_are_silent_has_ended(tmp_path: Path) -> None:
    asked = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()
        writer.close()

    silent = await asyncio.start_server(say_nothing, "127.0.0.1", 0)
    address = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    first = controller_of(tmp_path / "store", namesrvAddr=address, enableSlaveActingMaster="true")
    first.registration.refuse_taken_name = _nothing  # type: ignore[method-assign]
    before = asyncio.all_tasks()
    starting = asyncio.create_task(first.start())
    await asked.wait()
    await first.shutdown()
    with pytest.raises(BrokerEndedError):
        await starting
    silent.close()
    await silent.wait_closed()
    await until(lambda: asyncio.all_tasks() <= before)  # what was asked hears that nobody listens any more


async def _nothing() -> None:
    """Nobody has the name of this broker."""


@pytest.mark.parametrize("step", ["role.listen", "operations.start"])
async def test_a_start_that_fails_late_leaves_no_task_no_port_and_no_file(tmp_path: Path, step: str) -> None:
    port, mapped = free_port_base(), Path("/proc/self/maps")
    before = asyncio.all_tasks()
    first = controller_of(tmp_path / "store", listenPort=str(port))
    part = getattr(first, step.partition(".")[0])

    def fails() -> None:
        raise OSError(errno.EIO, "Input/output error")

    setattr(part, step.partition(".")[2], fails)
    with pytest.raises(OSError, match="Input/output error"):
        await first.start()
    assert asyncio.all_tasks() == before
    assert str(tmp_path) not in mapped.read_text()
    second = controller_of(tmp_path / "store", listenPort=str(port))
    await second.start()
    assert second.store.report.clean_exit
    await second.shutdown()


async def test_a_service_that_fails_while_the_broker_starts_fails_the_start(tmp_path: Path) -> None:
    first = controller_of(tmp_path / "store")
    listen = first.role.listen

    async def failing() -> None:
        await listen()
        first.service_failed("store: commit log flush", OSError("the disk is gone"))

    first.role.listen = failing  # type: ignore[method-assign]
    with pytest.raises(
        StoreFailedError, match="store: commit log flush failed while the broker started: the disk is gone"
    ):
        await first.start()
    second = controller_of(tmp_path / "store")
    await second.start()
    await second.shutdown()


async def test_who_shuts_down_a_second_time_waits_for_the_first(start_broker: Start) -> None:
    """A service has failed, which ends the broker, and its owner ends it, too: his loop ends with what he awaits."""
    broker = await start_broker()
    broker.create_topic("T")
    assert (await broker.send("T", b"kept")).code == 0
    broker.controller.service_failed("store: commit log flush", OSError("the disk is gone"))
    await asyncio.sleep(0)
    await broker.controller.shutdown()
    assert not (broker.folder / "abort").exists()
    again = await start_broker()
    assert again.controller.store.max_offset("T", 0) == 1


async def test_what_was_purged_is_shown_to_nobody_while_the_broker_starts(start_broker: Start) -> None:
    """Loading what the timer has can take long."""
    port = str(free_port_base())
    broker = await start_broker(listenPort=port)
    broker.create_topic("T", queues=1)
    for _ in range(3):
        assert (await broker.send("T", b"purged")).code == 0
    assert (await broker.invoke(RemotingCommand(RequestCode.MAXQ_PURGE_TOPIC, {"topic": "T"}))).code == 0
    await broker.stop()
    second = RunningBroker(broker.folder, {"listenPort": port})
    load, shown = second.controller.timed.load, []

    async def slowly() -> None:
        with contextlib.suppress(RemotingError):
            shown.extend(await second.pull_messages("T"))
        await load()

    second.controller.timed.load = slowly  # type: ignore[method-assign]
    await second.start()
    try:
        shown += await second.pull_messages("T")
        assert shown == []
    finally:
        await second.stop()


async def test_failed_service_of_the_store_stops_the_broker(start_broker: Start) -> None:
    broker = await start_broker()
    broker.controller.service_failed("store: commit log flush", OSError("the disk is gone"))
    stopping = broker.controller._stopping
    assert stopping is not None
    await stopping
    with pytest.raises(RemotingError):
        await broker.send("T", b"x")


async def test_failure_listener_decides_instead(start_broker: Start) -> None:
    broker = await start_broker()
    told: list[str] = []
    broker.controller.set_failure_listener(lambda service, error: told.append(f"{service}: {error}"))
    broker.controller.service_failed("store: commit log flush", OSError("the disk is gone"))
    assert told == ["store: commit log flush: the disk is gone"]
    assert (await broker.send("T", b"x")).code == 0


async def test_address_that_nobody_knows_is_named() -> None:
    with pytest.raises(ConfigError, match=r"brokerIP1=no-such-host\.invalid"):
        await resolve("no-such-host.invalid")
    assert await resolve("10.1.2.3") == "10.1.2.3"
    assert await resolve("::1") == "::1"


async def test_host_name_as_address_is_resolved_for_message_ids(start_broker: Start) -> None:
    broker = await start_broker(brokerIP1="localhost")
    broker.create_topic("T")
    sent = await broker.send("T", b"x")
    assert sent.ext["msgId"].startswith(("7F000001", "0000000000000000000000000000000"))


# ---- ports --------------------------------------------------------------------------------------------------------


async def test_vip_port_takes_sends_and_no_pulls(start_broker: Start) -> None:
    free = free_port_base()
    broker = await start_broker("vip", listenPort=free)
    broker.create_topic("T")
    vip = f"127.0.0.1:{free - 2}"
    sent = await broker.client.invoke(vip, broker.send_request("T", b"x"), TIMEOUT_MS)
    assert sent.code == 0
    pulled = await broker.client.invoke(vip, RemotingCommand(RequestCode.PULL_MESSAGE), TIMEOUT_MS)
    assert pulled.code == 3


# ---- information --------------------------------------------------------------------------------------------------

#: What tools read (broker-api §24.2); schedule offsets and the transient pool are not built.
RUNTIME_KEYS = {
    "bootTimestamp", "runtime", "putMessageTimesTotal", "putMessageSizeTotal", "putMessageAverageSize", "putTps",
    "getFoundTps", "getMissTps", "getTotalTps", "getTransferredTps", "commitLogDiskRatio", "consumeQueueDiskRatio",
    "commitLogMinOffset", "commitLogMaxOffset", "brokerActive", "brokerVersion", "brokerVersionDesc",
    "msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgPutTotalTodayNow", "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning", "msgGetTotalTodayNow", "dispatchBehindBytes", "pageCacheLockTimeMills",
    "earliestMessageTimeStamp", "startAcceptSendRequestTimeStamp", "timerReadBehind", "timerOffsetBehind",
    "timerCongestNum", "timerEnqueueTps", "timerDequeueTps", "remainTransientStoreBufferNumbs",
    "remainHowManyDataToFlush", "commitLogDirCapacity", "sendThreadPoolQueueSize", "sendThreadPoolQueueCapacity",
    "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueSize", "pullThreadPoolQueueCapacity",
    "pullThreadPoolQueueHeadWaitTimeMills", "litePullThreadPoolQueueSize", "litePullThreadPoolQueueCapacity",
    "litePullThreadPoolQueueHeadWaitTimeMills", "queryThreadPoolQueueSize", "queryThreadPoolQueueCapacity",
    "queryThreadPoolQueueHeadWaitTimeMills", "ackThreadPoolQueueSize", "ackThreadPoolQueueCapacity",
    "ackThreadPoolQueueHeadWaitTimeMills", "EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity",
    "putMessageEntireTimeMax", "putMessageFailedTimes", "putMessageDistributeTime", "dispatchMaxBuffer",
    "getMessageEntireTimeMax", "putLatency99", "putLatency999",
}  # fmt: skip


async def test_runtime_info_has_every_key_that_tools_read(start_broker: Start) -> None:
    broker = await start_broker()
    broker.create_topic("T")
    for i in range(5):
        await broker.send("T", b"m%d" % i, UNIQ_KEY=f"U{i}")
    await broker.pull("T", max_nums=3)
    reply = await broker.invoke(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    table = KVTable.decode(reply.body_bytes).table
    assert RUNTIME_KEYS - set(table) == set()
    assert (table["msgPutTotalTodayNow"], table["msgGetTotalTodayNow"]) == ("5", "3")
    assert table["brokerVersionDesc"] == "V5_3_3"
    assert table["maxqVersion"] == maxq.__version__
    assert len(table["putTps"].split()) == 3
    assert table[f"commitLogDiskRatio_{broker.folder / 'commitlog'}"]


async def test_schedule_has_the_tasks_of_the_mission(start_broker: Start) -> None:
    broker = await start_broker()
    assert {
        "broker stats record", "offset persist", "protect broker", "water mark", "dispatch behind", "slaves behind",
        "name server address", "register", "client channels", "statistics",
    } <= set(broker.controller.schedule.names())  # fmt: skip


# ---- in the simulator ---------------------------------------------------------------------------------------------


def test_the_shipped_broker_runs_in_virtual_time() -> None:
    async def main(world: SimWorld) -> tuple[int, int]:
        settings, _ = BrokerSettings.from_properties(
            small_store(Path("/store"))
            | {
                "listenPort": "10911",
                "flushDiskType": "SYNC_FLUSH",
            },
            source="test",
        )
        broker = BrokerController(settings, disk=world.disk, clock=world.clock, rng=world.rng)
        await broker.start()
        client = RemotingClient(NettyClientConfig(), clock=world.clock, rng=world.rng)
        request = RemotingCommand(
            RequestCode.SEND_MESSAGE_V2,
            {"a": "P", "b": "Fresh", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0", "i": ""},
            b"hello",
        )
        reply = await client.invoke("127.0.0.1:10911", request, 5_000)
        await asyncio.sleep(120)
        await client.close()
        await broker.shutdown()
        return reply.code, world.clock.monotonic_ms()

    code, ended_ms = run_simulation(main, seed=7)
    assert code == 0
    assert ended_ms >= 1_120_000


@pytest.mark.parametrize(
    "acting",
    [{}, {"enableSlaveActingMaster": "true", "totalReplicas": "2", "brokerHeartbeatInterval": "100"}],
    ids=["alone", "with a stand-in"],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_name_server_that_hangs_holds_up_neither_start_nor_end(acting: dict[str, str], seed: int) -> None:
    async def main(world: SimWorld) -> None:
        async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        silent = await asyncio.start_server(say_nothing, "127.0.0.1", 9875)
        names = NamesrvController(
            NamesrvSettings(NamesrvConfig(kv_config_path="/ns/kv.json"), NettyServerConfig(bind_address="127.0.0.1")),
            disk=world.disk, clock=world.clock, rng=world.rng,
        )  # fmt: skip
        await names.start()
        settings, _ = BrokerSettings.from_properties(
            small_store(Path("/store"))
            | {"listenPort": "10911", "namesrvAddr": f"127.0.0.1:9875;127.0.0.1:{names.port}"} | acting,
            source="test",
        )  # fmt: skip
        broker = BrokerController(settings, disk=world.disk, clock=world.clock, rng=world.rng)
        began = world.loop.time()
        await broker.start()
        assert world.loop.time() - began < (3 if acting else 1), "with a stand-in it waits 1.5 s for a slave"
        assert broker.registration.registered_with == [f"127.0.0.1:{names.port}"]
        began = world.loop.time()
        await broker.shutdown()
        assert world.loop.time() - began < 1
        await names.shutdown()
        silent.close()

    run_simulation(main, seed=seed)
