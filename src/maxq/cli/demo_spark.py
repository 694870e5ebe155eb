"""The last step of the demonstration: what was sent becomes Parquet files, and SQL answers a question from them."""

import time
from collections.abc import Callable
from pathlib import Path

from maxq.cli.pipeline.spark_run import need_spark, spark_run
from maxq.errors import MaxQError

_QUESTION = """
    SELECT tags AS package, count(*) AS lines, round(avg(length(body)), 1) AS width
    FROM archived GROUP BY tags ORDER BY lines DESC, package LIMIT 3
"""


def archive_and_ask(namesrv: str, topic: str, sent: int, folder: Path, say: Callable[[str, str], None]) -> None:
    """Archive `topic` below `folder`, have the archive proved against the broker, and ask it for the largest packages.

    Args:
        namesrv: name server of the demonstration.
        sent: how many messages there must be.
        say: prints one line of the account.

    Raises:
        MaxQError: the archive has not all messages; Spark is not installed or failed.
    """
    need_spark()
    from maxq.pipeline.jobs.archive.job import ArchiveConfig, archive_once, read_archive
    from maxq.pipeline.jobs.archive.verify import VerifyConfig, archive_verify

    path, options = str(folder / "archive"), {"rocketmq.namesrv": namesrv, "subscribe": topic}
    started = time.monotonic()
    with spark_run("demonstration", quiet=True) as spark:
        say("spark", f"Spark {spark.version} ready after {time.monotonic() - started:.1f} s")
        started = time.monotonic()
        made = archive_once(spark, ArchiveConfig(path, options))
        seconds = time.monotonic() - started
        size = sum(entry.bytes for entry in made.files) / 2**20
        say("archive", f"{made.rows:,} messages in {len(made.files)} Parquet files, {size:.1f} MiB, in {seconds:.1f} s")
        proof = archive_verify(spark, VerifyConfig(path, options, complete=True))
        if not proof.ok or made.rows != sent:
            raise MaxQError(f"{made.rows:,} of {sent:,} messages are in {path}: {proof.to_json()['findings'][:3]}")
        say("verify", f"every offset of {len(proof.bounds)} queues is in the archive once, every CRC is right")
        read_archive(spark, path).createOrReplaceTempView("archived")
        rows = spark.sql(_QUESTION).collect()
        say("sql", "most lines: " + ", ".join(f"{row.package} {row.lines:,} (width {row.width})" for row in rows))
