"""How readers take filters over from Spark."""

from collections.abc import Callable, Iterable

from pyspark.sql.datasource import DataSourceReader, Filter


class PushFilters:
    """In place of a reader's `pushFilters`.

    Spark refuses readers with filters of their own while spark.sql.python.filterPushdown.enabled is false, which is its
    default; it recognises them by the function behind the method. This looks like the one that every reader inherits.
    """

    def __init__(self, push: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._push = push
        self.__func__ = DataSourceReader.pushFilters  # of the instance: of the class it would come back bound

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._push(filters)
