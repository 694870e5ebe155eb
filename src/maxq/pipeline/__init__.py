"""The data pipeline on Apache Spark: topics and store files as tables and streams.

    import maxq.pipeline

    maxq.pipeline.register(spark)                                 # the formats rocketmq and rocketmq-store
    views = maxq.pipeline.register(spark, namesrv="127.0.0.1:9876")  # and a view for every topic
    views.sql("SELECT tags, count(*) FROM Orders GROUP BY tags").show()

Needs `pip install 'maxq[spark]'`; nothing else of MaxQ imports this package.
"""

from typing import TYPE_CHECKING, Any

__all__ = ["LagListener", "body_json", "offsets_behind", "register"]

if TYPE_CHECKING:
    from maxq.pipeline.registration import register
    from maxq.pipeline.source.lag import LagListener, offsets_behind
    from maxq.pipeline.transforms.json_body import body_json


def __getattr__(name: str) -> Any:
    # On demand: which Java to use is asked before Spark is there.
    if name == "register":
        from maxq.pipeline.registration import register

        return register
    if name == "body_json":
        from maxq.pipeline.transforms.json_body import body_json

        return body_json
    if name in ("LagListener", "offsets_behind"):
        from maxq.pipeline.source import lag

        return getattr(lag, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
