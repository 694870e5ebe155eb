"""`maxq pipeline`: jobs on Spark. Each has a file here, `pipeline_<name>.py`, and its work in maxq.pipeline.jobs."""

from maxq.cli.lazy import Entry, LazyGroup

SUMMARY = "Jobs on Spark: archive, audit, rebuild, replay, trace, stats, dlq."
COMMANDS = {
    "archive": Entry("maxq.cli.pipeline.archive", "Topics or store files to Parquet; verify and compact archives."),
    "audit": Entry("maxq.cli.pipeline.audit", "Queues and indexes against the log, replicas against each other."),
    "rebuild": Entry("maxq.cli.pipeline.rebuild", "ConsumeQueue and IndexFile files from CommitLog files."),
    "replay": Entry("maxq.cli.pipeline.replay", "An archive or a store back into topics."),
    "trace": Entry("maxq.cli.pipeline.trace", "Message traces: latencies, undelivered and slow messages."),
    "stats": Entry("maxq.cli.pipeline.stats", "Rates, sizes, hot keys and queues, lag, disk."),
    "dlq": Entry("maxq.cli.pipeline.dlq", "Dead letters as a table: causes, export, redrive."),
    "deliver": Entry("maxq.cli.pipeline.deliver", "The last batch of an application that will not come back."),
}
group = LazyGroup("pipeline", SUMMARY, COMMANDS)
