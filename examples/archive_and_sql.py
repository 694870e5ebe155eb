"""A topic becomes Parquet files, which are proved complete against the broker and asked a question in SQL.

python -m examples.archive_and_sql 127.0.0.1:9876 PythonSource
"""

import sys
import tempfile
import time

from examples.helpers import say
from maxq.errors import MaxQError
from maxq.pipeline.jobs.archive.job import ArchiveConfig, archive_once, read_archive
from maxq.pipeline.jobs.archive.verify import VerifyConfig, archive_verify
from maxq.pipeline.registration import register
from maxq.pipeline.session import using_session

QUESTION = """
    SELECT tags AS package, count(*) AS lines, round(avg(length(body)), 1) AS width
    FROM archived GROUP BY tags ORDER BY lines DESC, package LIMIT 3
"""


def archive_and_ask(namesrv: str, topic: str, path: str) -> int:
    """Archive `topic` below `path`, have the archive proved against the broker, and ask it for the commonest tags.

    Returns:
        how many messages are in the archive.

    Raises:
        MaxQError: the archive has not every message.
    """
    options = {"rocketmq.namesrv": namesrv, "subscribe": topic}
    started = time.monotonic()
    with using_session("archive and SQL") as spark:
        register(spark)
        say("spark", f"Spark {spark.version} ready after {time.monotonic() - started:.1f} s")
        started = time.monotonic()
        made = archive_once(spark, ArchiveConfig(path, options))
        seconds = time.monotonic() - started
        size = sum(file.bytes for file in made.files) / 2**20
        say("archive", f"{made.rows:,} messages in {len(made.files)} Parquet files, {size:.1f} MiB, in {seconds:.1f} s")
        proof = archive_verify(spark, VerifyConfig(path, options, complete=True))
        if not proof.ok:
            raise MaxQError(f"{path} has not all of {topic}: {proof.to_json()['findings'][:3]}")
        say("verify", f"every offset of {len(proof.bounds)} queues is in the archive once, every CRC is right")
        read_archive(spark, path).createOrReplaceTempView("archived")
        rows = spark.sql(QUESTION).collect()
        say("sql", "most lines: " + ", ".join(f"{row.package} {row.lines:,} (width {row.width})" for row in rows))
    return made.rows


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        archive_and_ask(sys.argv[1], sys.argv[2], folder)
