"""Archived messages beside those that brokers have at the same offsets, without Spark."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from maxq.api import Admin
from maxq.errors import PipelineError
from maxq.pipeline.archive.file_stats import entry_of
from maxq.pipeline.archive.folder import ArchiveFolder
from maxq.pipeline.archive.same_messages import check_brokers, check_order
from maxq.pipeline.options.read_options import ReadOptions
from maxq.pipeline.wire.queue_range import QueueRange
from maxq.pipeline.wire.wire_reader import WireReader
from maxq.protocol.body.topic_config import TopicConfig
from maxq.protocol.message.message_queue import MessageQueue
from maxq.standalone import Standalone
from tests.unit.pipeline.conftest import Fill

COLUMNS = "brokerName,queueId,queueOffset,physicalOffset,storeTimestamp,bodyCrc"


def options_of(server: Standalone, topic: str) -> ReadOptions:
    given = {"rocketmq.namesrv": server.namesrv_address, "subscribe": topic, "columns": COLUMNS}
    return ReadOptions.parse(given, streaming=False)


def archive(server: Standalone, folder: ArchiveFolder, topic: str, first: int, end: int) -> None:
    """Put messages of queue 0 into an archive."""
    batches = list(WireReader(options_of(server, topic)).read([QueueRange(topic, "broker-a", 0, first, end)]))
    path = f"topic={topic}/date=2026-11-21/run-{first:04d}.parquet"
    Path(folder.root, path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_batches(batches), f"{folder.root}/{path}")
    entry = entry_of(folder.filesystem, folder.root, path, "run")
    check_order(folder, folder.manifest(), [entry])
    folder.commit(lambda manifest: manifest.changed([entry], columns=COLUMNS.split(",")))


def made(admin: Admin, server: Standalone, topic: str) -> None:
    admin.topics.create(server.broker_address, TopicConfig(topic, 1, 1))


def test_a_queue_whose_messages_are_others_than_the_archived_ones_is_refused(
    server: Standalone, admin: Admin, fill: Fill, tmp_path: Path
) -> None:
    """Its messages at archived offsets were left out in silence, and the others put behind those of the old queue."""
    folder, queue = ArchiveFolder(str(tmp_path)), MessageQueue("Remade", "broker-a", 0)
    made(admin, server, "Remade")
    fill("Remade", 0, 10)
    options = options_of(server, "Remade")
    archive(server, folder, "Remade", 5, 10)
    archive(server, folder, "Remade", 2, 5)  # a back-fill
    for bounds in ((0, 10), (0, 5), (7, 10), (10, 10), (0, 2)):
        check_brokers(options, {queue: bounds}, folder, folder.manifest())
    admin.topics.delete("Remade", "DefaultCluster")
    made(admin, server, "Remade")
    fill("Remade", 0, 12)
    with pytest.raises(PipelineError, match="Remade/broker-a/0 has another message at offset 9 than the archive"):
        check_brokers(options, {queue: (0, 12)}, folder, folder.manifest())
    with pytest.raises(PipelineError, match=r"offset 1 of Remade/broker-a/0 is younger than the archived .* offset 9"):
        archive(server, folder, "Remade", 0, 2)
    assert folder.manifest().coverage() == {queue: [(2, 9)]}


def test_archived_messages_in_a_damaged_file_are_compared_with_nothing(
    server: Standalone, admin: Admin, fill: Fill, tmp_path: Path
) -> None:
    folder, queue = ArchiveFolder(str(tmp_path)), MessageQueue("Harmed", "broker-a", 0)
    made(admin, server, "Harmed")
    fill("Harmed", 0, 3)
    archive(server, folder, "Harmed", 0, 3)
    (file,) = tmp_path.glob("topic=*/*/*.parquet")
    file.write_bytes(file.read_bytes()[:-9])
    check_brokers(options_of(server, "Harmed"), {queue: (0, 3)}, folder, folder.manifest())
