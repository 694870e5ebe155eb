"""Views of a Spark session: every topic, what the cluster says of itself, the tables of a store directory.

`spark.sql` knows them by name. `Views.sql` also finds topics that came since, and names near ones for a topic that is
not there. The session (maxq.pipeline.session) decides what a query reads of them: the columns that it uses, and the
rows that its conditions leave.

    views = register(spark, namesrv="127.0.0.1:9876")
    views.declare_json("Orders", "id BIGINT, price DOUBLE")
    views.sql("SELECT avg(json.price) FROM Orders WHERE tags = 'paid'").show()
"""

import difflib
import json as json_text
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from maxq.arrow.schemas import MESSAGE_COLUMNS, METADATA_COLUMNS, spark_schema
from maxq.errors import PipelineError
from maxq.pipeline.cluster import cluster_source, cluster_tables
from maxq.pipeline.options.option_values import OptionValues
from maxq.pipeline.options.read_options import FORMAT, ConnectionOptions
from maxq.pipeline.store import store_source, store_tables
from maxq.pipeline.store.own_topics import is_own_topic
from maxq.pipeline.store.store_folder import open_store
from maxq.pipeline.transforms.json_body import body_json, infer_body_schema

JSON_COLUMN: Final = "json"
METADATA_SUFFIX: Final = "_metadata"
CLUSTER_VIEWS: Final = {"topics": "topics", "offsets": "offsets", "groups": "consumer_groups"}
STORE_PREFIX: Final = "store_"
BODY_FUNCTION: Final = (
    "CREATE OR REPLACE TEMPORARY FUNCTION body_json(body BINARY) RETURN try_parse_json(CAST(body AS STRING))"
)
_NEAR: Final = 3
_WORDS: Final = (re.compile(r"[%\w-]+"), re.compile(r"[%|\w-]+"))  # without and with |, which is an operator, too


@dataclass(frozen=True)
class MessageView:
    """A view of messages.

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

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the messages with all columns; queries read those that they use (maxq.pipeline.session)."""
        # A given schema saves starting a Python worker that would be asked for it.
        reader = spark.read.format(self.format).schema(spark_schema(self.columns))
        frame = reader.options(**{**self.options, "columns": ",".join(self.columns)}).load()
        if self.topic is not None:
            frame = frame.where(F.col("topic") == self.topic)
        return frame if self.json is None else frame.withColumn(JSON_COLUMN, body_json(self.json))


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
        self._made: set[str] = set()
        spark.sql(BODY_FUNCTION)

    # --- names ---

    def topics(self) -> list[str]:
        """Return the names of the topics that exist now, sorted, without brokers' own topics."""
        if self._wire:
            return cluster_tables.topic_names(ConnectionOptions.parse(OptionValues(self._wire, FORMAT)))
        found = {topic for path in self._store for topic in _topics_of(path)}
        return sorted(topic for topic in found if not is_own_topic(topic))

    def tables(self) -> dict[str, tuple[str, dict[str, str]]]:
        """Return the views that are not messages: name → format and options."""
        found: dict[str, tuple[str, dict[str, str]]] = {}
        if self._wire:
            for table, name in CLUSTER_VIEWS.items():
                found[name] = (cluster_source.FORMAT, {**self._wire, "table": table})
        if self._store:
            for table in store_tables.TABLES:
                found[STORE_PREFIX + table] = (store_source.FORMAT, {**self._paths, "table": table})
        return found

    def messages(self) -> dict[str, MessageView]:
        """Return the views of messages by name: topics, their metadata, the messages of the store directories."""
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
        """Make all views for `spark.sql`. Returns their names.

        Names are compared without regard to case: of topics that differ in case only the first is a view.
        """
        return self._make(None)

    def _make(self, names: AbstractSet[str] | None) -> list[str]:
        """Make the views of these names, which are in lower case; None: all. Returns their names."""
        made: dict[str, str] = {}  # by name in lower case
        for name, view in self.messages().items():
            if name.lower() not in made and (names is None or name.lower() in names):
                made[name.lower()] = name
                self._keep(name, view.frame(self._spark))
        for name, (kind, options) in self.tables().items():
            if name not in made and (names is None or name in names):
                made[name] = name
                self._keep(name, self._spark.read.format(kind).options(**options).load())
        return list(made.values())

    def _keep(self, name: str, frame: DataFrame) -> None:
        self._made.add(name)
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
            schema = infer_body_schema(view.frame(self._spark))
        self._json[topic] = schema
        if topic in self._made:
            self._keep(topic, replace(view, json=schema).frame(self._spark))
        return schema

    # --- queries ---

    def sql(self, text: str) -> DataFrame:
        """Run a query as `spark.sql` does, over the topics that exist now, even if another session has replaced views
        of the same names.

        Raises:
            PipelineError: a table that is neither a topic nor one of ours nor Spark's; names near ones.
        """
        self._make(_names_in(text))
        try:
            return self._spark.sql(text)
        except AnalysisException as error:
            if error.getCondition() != "TABLE_OR_VIEW_NOT_FOUND":
                raise
            name = (error.getMessageParameters() or {}).get("relationName", "").strip("`")
            raise self._unknown(name, "table or topic") from None

    def _unknown(self, name: str, what: str) -> PipelineError:
        known = [*self.topics(), *self.tables()]
        near = difflib.get_close_matches(name.lower(), [one.lower() for one in known], n=_NEAR, cutoff=0.5)
        spelled = {one.lower(): one for one in known}
        if near:
            hint = f"did you mean {', '.join(spelled[one] for one in near)}?"
        else:
            hint = f"there are {', '.join(known[:20])}{' …' if len(known) > 20 else ''}"
        return PipelineError(f"there is no {what} {name}: {hint}")


def _names_in(text: str) -> set[str]:
    """Return the words of a query that may be names of topics, in lower case."""
    return {word for pattern in _WORDS for word in pattern.findall(text.lower())}


def _topics_of(path: str) -> set[str]:
    files = open_store(path)
    return {topic for topic, _ in (*files.queues, *files.batch_queues)}


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
