"""For Spark, which imports packages named pyspark_… and makes their DefaultSource a format: `rocketmq`.

Source: pyspark/sql/worker/lookup_data_sources.py. Everything is in maxq.pipeline.
"""

from maxq.pipeline.source.topic_source import RocketMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
