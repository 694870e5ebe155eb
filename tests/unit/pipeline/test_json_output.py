"""The results of jobs are as `maxq schema` says; their sessions of Spark are not needed for that."""

import json
from pathlib import Path
from typing import Any

import pytest

from maxq.pipeline.archive.coverage import Finding
from maxq.pipeline.jobs.archive.compact import CompactResult
from maxq.pipeline.jobs.archive.job import ArchiveResult
from maxq.pipeline.jobs.archive.table import TableResult
from maxq.pipeline.jobs.archive.verify import VerifyResult
from maxq.pipeline.jobs.audit.job import AuditResult, StoreFacts
from maxq.pipeline.jobs.message_input import MessageInput
from maxq.pipeline.jobs.rebuild.job import RebuildReport
from maxq.pipeline.jobs.replay import SentResult
from maxq.pipeline.jobs.stats import StatsResult, StatsSettings
from maxq.pipeline.jobs.trace import TraceResult, TraceSettings
from maxq.protocol.message.message_queue import MessageQueue
from tests.json_output import check_output

QUEUE = MessageQueue("T", "broker-a", 0)
FAULT = {"store": "/s", "file": "commitlog/0", "position": 7, "kind": "crc", "expected": None, "found": "x"}
FINDINGS = (Finding("missing", QUEUE, 0, 9), Finding("size", file="a"))
RESULTS = {
    "pipeline archive run": ArchiveResult((), ("old.parquet",)),
    "pipeline archive verify": VerifyResult(
        (Finding("missing", QUEUE, 0, 9), Finding("size", file="a")), {QUEUE: [(0, 5)]}, {QUEUE: (0, 9)}, 1
    ),
    "pipeline archive compact": CompactResult(3, 1, 20),
    "pipeline archive table": TableResult(20, 0),
    "pipeline audit": AuditResult([StoreFacts("/s", 0, 100)], [("/s", "crc", 1)], [FAULT]),
    "pipeline rebuild": RebuildReport("/s", index_files=["20260131080000000"]),
    "pipeline replay": SentResult(20, 2),
    "pipeline trace": TraceResult(
        TraceSettings(MessageInput(("Traces",), "n:9876"), message_id="7F"), [], [], 1, 2, 3, 4, 1000, [], [], [], [],
        [{"count": 3}], [], {"send": 1}, [], 0, 0, True, [],
    ),
    "pipeline stats": StatsResult(
        StatsSettings(MessageInput((), "n:9876"), history=Path("h")), 1000, 1, 2, [], [], [], [], 0, [], 0, None, [],
        [], [], [], [],
    ),
}  # fmt: skip


@pytest.mark.parametrize("command", RESULTS)
def test_the_result_of_a_job_is_as_its_schema_says(command: str) -> None:
    result: Any = RESULTS[command]
    check_output(command, json.loads(json.dumps(result.to_json())))
