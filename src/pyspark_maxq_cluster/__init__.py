"""For Spark, which imports packages named pyspark_… and makes their DefaultSource a format: `rocketmq-cluster`.

Source: pyspark/sql/worker/lookup_data_sources.py. Everything is in maxq.pipeline.
"""

from maxq.pipeline.cluster.cluster_source import RocketMQClusterDataSource as DefaultSource

__all__ = ["DefaultSource"]
