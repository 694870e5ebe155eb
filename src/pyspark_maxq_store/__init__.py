"""For Spark, which imports packages named pyspark_… and makes their DefaultSource a format: `rocketmq-store`.

Source: pyspark/sql/worker/lookup_data_sources.py. Everything is in maxq.pipeline.
"""

from maxq.pipeline.store.store_source import RocketMQStoreDataSource as DefaultSource

__all__ = ["DefaultSource"]
