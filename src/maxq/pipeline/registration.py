"""Makes the formats known to a Spark session, and with the address of a cluster or a store directory its views."""

from collections.abc import Mapping, Sequence
from typing import overload

from pyspark.sql import SparkSession

from maxq.pipeline.cluster.cluster_source import RocketMQClusterDataSource
from maxq.pipeline.session import prepare
from maxq.pipeline.source.topic_source import RocketMQDataSource
from maxq.pipeline.sql.views import Views
from maxq.pipeline.store.store_source import RocketMQStoreDataSource

_FORMATS = (RocketMQDataSource, RocketMQStoreDataSource, RocketMQClusterDataSource)


@overload
def register(spark: SparkSession) -> None: ...
@overload
def register(
    spark: SparkSession,
    namesrv: str | None = ...,
    *,
    store: str | Sequence[str] = ...,
    options: Mapping[str, str] | None = ...,
) -> Views: ...
def register(
    spark: SparkSession,
    namesrv: str | None = None,
    *,
    store: str | Sequence[str] = (),
    options: Mapping[str, str] | None = None,
) -> Views | None:
    """Register the formats `rocketmq`, `rocketmq-store` and `rocketmq-cluster`, and set the session options that they
    need.

    Args:
        namesrv: name servers, host:port separated by ';': every topic becomes a view, and so do `topics`, `offsets` and
            `consumer_groups`.
        store: store directories: their tables become views named `store_…`, and without `namesrv` so do their topics.
        options: more options of the connection, such as those of TLS and ACL.

    Returns:
        The views, if there are any.
    """
    prepare(spark)
    for source in _FORMATS:
        spark.dataSource.register(source)
    paths = [store] if isinstance(store, str) else list(store)
    if namesrv is None and not paths:
        return None
    views = Views(spark, namesrv, paths, options)
    views.create()
    return views
