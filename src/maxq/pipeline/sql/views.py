"""Views of a Spark session: every topic, what the cluster says of itself, the tables of a store directory.

`spark.sql` knows them by name. `Views.sql` does more: it reads only the columns that a query uses (a count ships no
body) and only what the query's conditions leave of a topic, finds topics that came since, and names near ones for a
topic that is not there.

    views = register(spark, namesrv="127.0.0.1:9876")
    views.declare_json("Orders", "id BIGINT, price DOUBLE")
    views.sql("SELECT avg(json.price) FROM Orders WHERE tags = 'paid'").show()
"""

import difflib
import json as json_text
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

from maxq.errors import PipelineError
from maxq.pipeline.cluster import cluster_source, cluster_tables
from maxq.pipeline.options.option_values import OptionValues
from maxq.pipeline.options.predicate import condition, predicate_option
from maxq.pipeline.options.read_options import FORMAT, ConnectionOptions
from maxq.pipeline.records.schemas import MESSAGE_COLUMNS, METADATA_COLUMNS, spark_schema
from maxq.pipeline.sql.plan_columns import EmptyRelation, columns_used, tables_named
from maxq.pipeline.sql.plan_conditions import conditions_met
from maxq.pipeline.store import store_source, store_tables
from maxq.pipeline.store.store_folder import open_store
from maxq.pipeline.transforms.json_body import body_json, infer_body_schema

JSON_COLUMN: Final = "json"
METADATA_SUFFIX: Final = "_metadata"
CLUSTER_VIEWS: Final = {"topics": "topics", "offsets": "offsets", "groups": "consumer_groups"}
STORE_PREFIX: Final = "store_"
BODY_FUNCTION: Final = (
    "CREATE OR REPLACE TEMPORARY FUNCTION body_json(body BINARY) RETURN try_parse_json(CAST(body AS STRING))"
)
_CHEAPEST: Final = ("queueOffset",)  # of a query that uses no column, such as a count
_QUERIES: Final = ("SELECT", "WITH", "FROM", "TABLE", "(")
_NEAR: Final = 3
_SYSTEM_PREFIXES: Final = ("rmq_sys_", "schedule_topic_xxxx")  # in lower case, of topics that stores have


@dataclass(frozen=True)
class MessageView:
    """A view of messages, whose columns are read as a query needs them.

    Attributes:
        name: of the view.
        format, options: of the source, without `columns`.
        columns: all it has.
        topic: the messages of this topic only.
        json: schema of the column `json`; None if it has none.
    """

    name: str
    format: str
    options: Mapping[str, str]
    columns: tuple[str, ...] = tuple(MESSAGE_COLUMNS)
    topic: str | None = None
    json: str | StructType | None = None

    def frame(
        self, spark: SparkSession, columns: Sequence[str] | None = None, conditions: Sequence[Filter] = ()
    ) -> DataFrame:
        """The messages with these columns; None: with all the view has.

        Args:
            conditions: those that every row meets that is ever wanted of them; others may be left out.
        """
        wanted = list(self.columns if columns is None else columns)
        if columns is None and self.json is not None:
            wanted.append(JSON_COLUMN)
        read = [name for name in wanted if name != JSON_COLUMN] or list(_CHEAPEST)
        if JSON_COLUMN in wanted and "body" not in read:
            read.append("body")
        if self.topic is not None and "topic" not in read:
            read.append("topic")
        own = () if self.topic is None else (condition("topic", "=", self.topic),)
        options = {**self.options, **predicate_option((*own, *conditions)), "columns": ",".join(read)}
        # A schema that is given spares a Python worker that would be asked for it.
        frame = spark.read.format(self.format).schema(spark_schema(tuple(read))).options(**options).load()
        if self.topic is not None:
            frame = frame.where(F.col("topic") == self.topic)
        if JSON_COLUMN in wanted and self.json is not None:
            frame = frame.withColumn(JSON_COLUMN, body_json(self.json))
        return frame.select(*(wanted or _CHEAPEST))

    def schema(self) -> StructType:
        """Of `frame`, without asking the source."""
        text = spark_schema(self.columns)
        if self.json is not None:
            fields = self.json if isinstance(self.json, str) else self.json.simpleString()
            text += f", `{JSON_COLUMN}` {fields if fields.lower().startswith('struct<') else f'STRUCT<{fields}>'}"
        found = StructType.fromDDL(text)
        assert isinstance(found, StructType), "columns make a structure"
        return found


class Views:
    """The views of one session. Made by `register`.

    Args:
        spark: has the formats registered.
        namesrv: name servers, for topics and the cluster's tables.
        store: store directories, for `store_…` and, if `namesrv` is not given, for topics.
        options: more options of `format("rocketmq")`, such as those of TLS and ACL.
    """

    def __init__(
        self,
        spark: SparkSession,
        namesrv: str | None = None,
        store: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._spark = spark
        own = store_source.store_options(options or {})
        self._paths = {**own, "paths": json_text.dumps(list(store))} if store else {}
        self._store = list(store)
        self._wire = {**(options or {}), "rocketmq.namesrv": namesrv} if namesrv else {}
        self._json: dict[str, str | StructType] = {}  # by topic
        self._made: dict[str, DataFrame] = {}  # views that stay, by name
        spark.sql(BODY_FUNCTION)

    # --- names ---

    def topics(self) -> list[str]:
        """Names of the topics there are now, sorted; brokers' own topics are left out."""
        if self._wire:
            return cluster_tables.topic_names(ConnectionOptions.parse(OptionValues(self._wire, FORMAT)))
        found = {topic for path in self._store for topic in _topics_of(path)}
        return sorted(topic for topic in found if not topic.lower().startswith(_SYSTEM_PREFIXES))

    def tables(self) -> dict[str, tuple[str, dict[str, str]]]:
        """Views that are no messages: name → format and options."""
        found: dict[str, tuple[str, dict[str, str]]] = {}
        if self._wire:
            for table, name in CLUSTER_VIEWS.items():
                found[name] = (cluster_source.FORMAT, {**self._wire, "table": table})
        if self._store:
            for table in store_tables.TABLES:
                found[STORE_PREFIX + table] = (store_source.FORMAT, {**self._paths, "table": table})
        return found

    def messages(self) -> dict[str, MessageView]:
        """Views of messages by name: topics, their metadata, the messages of the store directories."""
        found: dict[str, MessageView] = {}
        if self._store:
            name = STORE_PREFIX + "messages"
            found[name] = MessageView(name, store_source.FORMAT, self._paths)
        for topic in self.topics():
            if self._wire:
                view = MessageView(topic, FORMAT, {**self._wire, "subscribe": topic}, json=self._json.get(topic))
            else:
                view = MessageView(topic, store_source.FORMAT, self._paths, topic=topic, json=self._json.get(topic))
            found[topic] = view
            name = topic + METADATA_SUFFIX
            found.setdefault(name, replace(view, name=name, columns=METADATA_COLUMNS, json=None))
        return found

    # --- views for spark.sql ---

    def create(self) -> list[str]:
        """Make all views for `spark.sql`; returns their names.

        Names are compared without regard to case: of topics that differ in case only the first is a view.
        """
        taken: set[str] = set()
        for view in self.messages().values():
            if view.name.lower() not in taken:
                taken.add(view.name.lower())
                self._keep(view.name, view.frame(self._spark))
        for name, (kind, options) in self.tables().items():
            if name.lower() not in taken:
                self._keep(name, self._spark.read.format(kind).options(**options).load())
        return list(self._made)

    def _keep(self, name: str, frame: DataFrame) -> None:
        self._made[name] = frame
        frame.createOrReplaceTempView(_quoted(name))

    # --- JSON ---

    def declare_json(self, topic: str, schema: str | StructType | None = None) -> str | StructType:
        """Give the topic's view a column `json`, a structure made of the body; returns its schema.

        Args:
            schema: its fields, as DDL or type; None infers them from some of the messages.

        Raises:
            PipelineError: there is no such topic, or nothing to infer from.
        """
        view = self.messages().get(topic)
        if view is None:
            raise self._unknown(topic, "topic")
        if schema is None:
            schema = infer_body_schema(view.frame(self._spark, ("body",)))
        self._json[topic] = schema
        if topic in self._made:
            self._keep(topic, replace(view, json=schema).frame(self._spark))
        return schema

    # --- queries ---

    def sql(self, text: str) -> DataFrame:
        """The result of a query, for which only the columns that it uses are read.

        Anything else than a query (SHOW, CREATE, …) goes to Spark as it is.

        Raises:
            PipelineError: a table that is neither a topic nor one of ours nor Spark's; names near ones.
        """
        try:
            if not text.lstrip().upper().startswith(_QUERIES):
                return self._spark.sql(text)
            return self._narrow_sql(text)
        except AnalysisException as error:
            if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
                raise
            name = (error.getMessageParameters() or {}).get("relationName", "").strip("`")
            raise self._unknown(name, "table or topic") from None

    def _narrow_sql(self, text: str) -> DataFrame:
        asked = {name.lower() for name in tables_named(self._spark, text)}
        views = {name: view for name, view in self.messages().items() if name.lower() in asked}
        tables = {name: table for name, table in self.tables().items() if name.lower() in asked and name not in views}
        frames = {
            name: self._spark.read.format(kind).options(**options).load() for name, (kind, options) in tables.items()
        }
        empty = {name: EmptyRelation(self._spark, view.schema()) for name, view in views.items()}
        with self._in_place({**frames, **{name: relation.frame for name, relation in empty.items()}}):
            plan = self._spark.sql(text)
            used = {name: columns_used(plan, relation) or _CHEAPEST for name, relation in empty.items()}
            met = {name: conditions_met(plan, relation) for name, relation in empty.items()}
        narrow = {name: view.frame(self._spark, used[name], met[name]) for name, view in views.items()}
        with self._in_place({**frames, **narrow}):
            return self._spark.sql(text)

    @contextmanager
    def _in_place(self, frames: Mapping[str, DataFrame]) -> Iterator[None]:
        """Have these views for the block; afterwards what was there before."""
        for name, frame in frames.items():
            frame.createOrReplaceTempView(_quoted(name))
        try:
            yield
        finally:
            for name in frames:
                if name in self._made:
                    self._made[name].createOrReplaceTempView(_quoted(name))
                else:
                    self._spark.catalog.dropTempView(_quoted(name))

    def _unknown(self, name: str, what: str) -> PipelineError:
        known = [*self.topics(), *self.tables()]
        near = difflib.get_close_matches(name.lower(), [one.lower() for one in known], n=_NEAR, cutoff=0.5)
        spelled = {one.lower(): one for one in known}
        if near:
            hint = f"did you mean {', '.join(spelled[one] for one in near)}?"
        else:
            hint = f"there are {', '.join(known[:20])}{' …' if len(known) > 20 else ''}"
        return PipelineError(f"there is no {what} {name}: {hint}")


def _topics_of(path: str) -> set[str]:
    files = open_store(path)
    return {topic for topic, _ in (*files.queues, *files.batch_queues)}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
