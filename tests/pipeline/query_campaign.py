"""SQL over the views against plain Spark: random queries over topics, and the same over a copy of their rows.

Every query is asked in two sessions: in one the names are the views of a cluster's topics, in the other they are tables
of the rows that the views gave. Both must refuse it with the same condition, or give the same rows.

    python -m tests.pipeline.query_campaign --seconds 3600            # goes on with the count in query_campaign.txt
    python -m tests.pipeline.query_campaign --first 1200 --last 1210  # these again, and counts nothing

A query is made of its seed alone. Of the kind `wire` the views read brokers, of the kind `store` the files of one.
"""

import argparse
import contextlib
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import maxq
from maxq.api import Message, Producer
from maxq.pipeline import register
from maxq.pipeline.session import local_session
from maxq.pipeline.spark.errors import SPARK_ERRORS, plain_text
from tests.counted_runs import Count

TAGS: Final = (
    None,
    "paid",
    "open",
    "PAID",
    "pad",
    "pad ",
    " pad",
    "ünï",
    "100%",
    "a_b",
    "a'b",
    "a\\b",
    "*",
    "NaN",
    "1",
)
KEYS: Final = (None, "k1", "k1 k2", "k2 all", "K1", "it's", "é all")
TOPICS: Final = {"Orders": 45, "Payments": 15}
JSON: Final = "id BIGINT, price DOUBLE, note STRING"
NAN: Final = "double('NaN')"
#: Queries of a few rows take the time of being planned and compiled.
QUICK: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
GOAL: Final = 10_000  # queries
COUNTED: Final = Path(__file__).with_name("query_campaign.txt")
JAVA: Final = "-XX:+UseSerialGC"  # thousands of plans are worth compiling twice
_TIMES: Final = 8  # store times that queries name: always so many, so that a seed makes the same queries again
_AT_ONCE: Final = 32  # queries of one Spark job
_THREADS: Final = 3  # jobs under way: while one is planned, others wait for their Python workers


def fill(namesrv: str) -> None:
    """Messages with every tag and key, in all queues, bodies that are JSON and some that are not."""
    with Producer("campaign", namesrv) as producer:
        for topic, count in TOPICS.items():
            for number in range(count):
                price = "NaN" if number % 11 == 0 else f"{number % 7}.5"
                body = f'{{"id": {number}, "price": {price}, "note": "n{number % 3}"}}'
                message = Message(topic, body.encode() if number % 5 else b"no JSON")
                tag, keys = TAGS[number % len(TAGS)], KEYS[number % len(KEYS)]
                if tag is not None:
                    message.tags = tag
                if keys is not None:
                    message.keys = keys
                message.properties["n"] = str(number % 4)
                producer.send(message)


class Queries:
    """Makes queries that have one answer, whatever the order in which rows come.

    Args:
        times: store times of the topics, as SQL text.
    """

    def __init__(self, rng: random.Random, times: Sequence[str]) -> None:
        self._rng = rng
        self._times = times

    def query(self) -> str:
        forms: list[Callable[[], str]] = [
            self._rows, self._rows, self._count, self._grouped, self._joined, self._nested, self._with, self._set,
            self._first, self._window, self._exploded, self._semi, self._scalar, self._pipe, self._odd,
        ]  # fmt: skip
        return self._rng.choice(forms)()

    # --- queries ---

    def _rows(self) -> str:
        alias = self._rng.choice(("", "", " o", " AS o"))
        name = self._topic()
        prefix = self._rng.choice(("", f"{'o' if alias else name}."))
        return f"SELECT {self._columns(prefix)} FROM {name}{alias}{self._where(prefix)}"

    def _count(self) -> str:
        what = self._rng.choice(("count(*)", "count(1)", "count(tags)", "count(DISTINCT tags)", "max(queueOffset)"))
        return f"SELECT {what} FROM {self._source()}{self._where()}"

    def _grouped(self) -> str:
        by = self._rng.choice(("tags", "queueId", "upper(tags)", "properties['n']", "size(keys)", "queueId, tags"))
        having = self._rng.choice(("", " HAVING count(*) > 2", " HAVING max(queueOffset) >= 1 AND count(tags) > 0"))
        sums = "count(*) AS c, sum(queueOffset) AS s, min(storeTimestamp), max(tags)"
        return f"SELECT {by}, {sums} FROM {self._source()}{self._where()} GROUP BY {by}{having}"

    def _joined(self) -> str:
        kind = self._rng.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"))
        on = self._rng.choice((
            "a.queueOffset = b.queueOffset AND a.queueId = b.queueId", "a.tags = b.tags", "a.tags <=> b.tags",
            "a.queueId = b.queueId AND b.tags = 'paid'", "a.msgId = b.msgId", "array_contains(b.keys, a.tags)",
            "a.queueId = b.queueOffset AND a.queueId = 1",
        ))  # fmt: skip
        right = "" if kind.endswith(("SEMI JOIN", "ANTI JOIN")) else ", b.queueId, b.queueOffset, b.keys"
        where = self._where("a.") if self._rng.random() < 0.5 or not right else self._where("b.")
        return f"SELECT a.tags, a.queueOffset{right} FROM {self._source()} a {kind} {self._source()} b ON {on}{where}"

    def _nested(self) -> str:
        inner = f"SELECT {self._columns('', every=True)} FROM {self._topic()}{self._where()}"
        outer = self._rng.choice(("count(*)", "tags", "queueId, tags", "*", "1 AS one", "max(tags)"))
        return f"SELECT {outer} FROM ({inner}) s{self._where('s.') if self._rng.random() < 0.5 else ''}"

    def _with(self) -> str:
        columns = self._columns("", every=True)
        first = f"WITH x AS (SELECT {columns} FROM {self._topic()}{self._where()})"
        second = f"{first}, y AS (SELECT tags, queueId FROM {self._rng.choice(('x', 'Orders'))}{self._where()})"
        return self._rng.choice((
            f"{first} SELECT tags, queueOffset FROM x{self._where()}",
            f"{first} SELECT count(*) FROM x a JOIN x b ON a.queueOffset = b.queueOffset AND a.queueId = b.queueId",
            f"{first} SELECT 1",
            f"{second} SELECT count(*), max(tags) FROM y",
            f"{second} SELECT tags FROM x UNION ALL SELECT tags FROM y{self._where('y.')}",
            f"{second} SELECT tags FROM x WHERE queueId IN (SELECT queueId FROM y)",
        ))  # fmt: skip

    def _set(self) -> str:
        kind = self._rng.choice(("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL", "INTERSECT ALL"))
        columns = self._rng.choice(("tags", "queueId, tags", "keys", "queueOffset", "tags, storeTimestamp"))
        several = [f"SELECT {columns} FROM {self._source()}{self._where()}" for _ in range(self._rng.choice((2, 2, 3)))]
        whole = f" {kind} ".join(several)
        if self._rng.random() < 0.2:
            whole = f"TABLE Payments_metadata {kind} TABLE Payments_metadata" if kind.endswith("ALL") else whole
            whole = whole.replace("TABLE Payments_metadata", "SELECT * EXCEPT (properties) FROM Payments_metadata")
        return f"SELECT count(*) FROM ({whole})" if self._rng.random() < 0.3 else whole

    def _first(self) -> str:
        order = self._rng.choice(("", "tags DESC NULLS LAST, ", "upper(tags), ", "storeTimestamp DESC, "))
        limit = self._rng.choice((" LIMIT 3", " LIMIT 0", " LIMIT 2 OFFSET 1", " OFFSET 40", " LIMIT 1000"))
        if self._rng.random() < 0.1:
            return "SELECT count(*) FROM (SELECT body FROM Orders LIMIT 7)"
        source = f"{self._topic()}{self._where()}"
        return f"SELECT {self._columns('')} FROM {source} ORDER BY {order}queueId, queueOffset{limit}"

    def _window(self) -> str:
        over = f"PARTITION BY {self._rng.choice(('tags', 'queueId'))} ORDER BY queueId, queueOffset"
        source = f"{self._topic()}{self._where()}"
        inner = f"SELECT tags, queueId, queueOffset, row_number() OVER ({over}) AS r FROM {source}"
        return f"SELECT * FROM ({inner}) WHERE r <= 2 AND {self._condition()}"

    def _exploded(self) -> str:
        return self._rng.choice((
            f"SELECT k, count(*) FROM {self._topic()} LATERAL VIEW explode(keys) e AS k{self._where()} GROUP BY k",
            f"SELECT o.tags, k FROM {self._topic()} o, LATERAL explode(o.keys) AS e(k){self._where('o.')}",
            f"SELECT tags, n FROM {self._topic()} LATERAL VIEW OUTER explode(keys) e AS n WHERE n = 'k1' OR n IS NULL",
            f"SELECT s.c FROM {self._topic()} o, "
            "LATERAL (SELECT count(*) c FROM Payments p WHERE p.queueId = o.queueId) s",
        ))  # fmt: skip

    def _semi(self) -> str:
        inner = f"SELECT queueId FROM {self._topic()} i{self._where('i.')}"
        return self._rng.choice((
            f"SELECT tags FROM {self._topic()} WHERE queueId IN ({inner}) AND {self._condition()}",
            f"SELECT tags FROM {self._topic()} WHERE queueId NOT IN ({inner})",
            f"SELECT tags, queueOffset FROM {self._topic()} o WHERE EXISTS ({inner} AND i.tags = o.tags)"
            if " WHERE " in inner else f"SELECT count(*) FROM ({inner})",
            f"SELECT count(*) FROM {self._topic()} o "
            "WHERE tags IN (SELECT tags FROM Payments p WHERE p.queueId = o.queueId)",
        ))  # fmt: skip

    def _scalar(self) -> str:
        inner = self._rng.choice(("max(queueOffset)", "min(queueId)", "count(DISTINCT tags)"))
        return self._rng.choice((
            f"SELECT tags, (SELECT {inner} FROM {self._topic()}{self._where()}) AS m FROM Payments{self._where()}",
            f"SELECT tags FROM {self._topic()} WHERE queueOffset < (SELECT {inner} FROM Payments{self._where()})",
            "SELECT o.tags, (SELECT max(p.tags) FROM Payments p WHERE p.queueId = o.queueId) AS t FROM Orders o",
        ))  # fmt: skip

    def _pipe(self) -> str:
        return self._rng.choice((
            f"FROM {self._topic()} |> WHERE {self._condition()} |> SELECT tags, queueId",
            f"FROM {self._topic()} |> AGGREGATE count(*) AS c GROUP BY tags |> WHERE c > 1",
            f"FROM {self._topic()} |> EXTEND queueId + 1 AS q |> DROP properties |> WHERE q > 1 |> SELECT q, tags",
            f"FROM {self._topic()} SELECT tags{self._where()}",
        ))  # fmt: skip

    def _odd(self) -> str:
        return self._rng.choice((
            f"SELECT * EXCEPT (body, properties) FROM {self._topic()}{self._where()}",
            f"SELECT 1 FROM {self._topic()}{self._where()}",
            f"SELECT tags, tags, queueId AS tags FROM {self._topic()}{self._where()}",
            f"SELECT json.id, json.price FROM Orders WHERE json.price {self._rng.choice(('=', '>', '<=', '<=>'))} "
            f"{self._rng.choice(('1.5', NAN, 'NULL', '0'))} AND {self._condition()}",
            "SELECT sum(json.id), count(json.note) FROM Orders WHERE tags IS NOT NULL",
            f"SELECT * FROM (SELECT tags, queueId FROM {self._topic()}) PIVOT (count(*) FOR queueId IN (0, 1, 2, 3))",
            f"SELECT count(*) FROM {self._topic()} TABLESAMPLE (100 PERCENT){self._where()}",
            "SELECT v.t, o.queueOffset FROM VALUES ('paid'), ('pad '), (NULL) AS v(t) "
            f"LEFT JOIN {self._topic()} o ON o.tags = v.t",
            f"SELECT DISTINCT tags FROM {self._topic()}{self._where()}",
            f"SELECT nowhere FROM {self._topic()}",
            f"SELECT tags FROM (SELECT queueId FROM {self._topic()})",
            f"SELECT map_keys(properties)[0] IS NULL, element_at(properties, 'n') FROM {self._topic()}{self._where()}",
            f"SELECT tags, queueId, grouping_id() AS g, count(*) FROM {self._topic()} GROUP BY CUBE (tags, queueId)",
            f"SELECT queueId q, collect_set(tags) IS NULL, bool_or({self._condition()}) FROM Orders GROUP BY ALL",
        ))  # fmt: skip

    # --- parts ---

    def _topic(self) -> str:
        return self._rng.choice(("Orders", "Orders", "Payments", "orders", "Orders_metadata"))

    def _source(self) -> str:
        if self._rng.random() < 0.7:
            return self._topic()
        return f"(SELECT {self._columns('', every=True)} FROM {self._topic()}{self._where()})"

    def _columns(self, prefix: str, *, every: bool = False) -> str:
        """`every`: all those that conditions and queries speak of."""
        needed = ["tags", "keys", "queueId", "queueOffset", "storeTimestamp", "topic", "msgId", "properties"]
        some = ["brokerName", "sysFlag", "flag", "bodyCrc", "uniqKey", "bornHost", "physicalOffset"]
        names = needed if every else self._rng.sample(needed, self._rng.randint(1, 4))
        names = names + self._rng.sample(some, self._rng.randint(0, 2))
        return ", ".join(prefix + name for name in names)

    def _where(self, prefix: str = "") -> str:
        return "" if self._rng.random() < 0.25 else f" WHERE {self._condition(prefix)}"

    def _condition(self, prefix: str = "", depth: int = 0) -> str:
        rng = self._rng
        kind = rng.random()
        if depth < 3 and kind < 0.25:
            return f"{self._condition(prefix, depth + 1)} AND {self._condition(prefix, depth + 1)}"
        if depth < 3 and kind < 0.4:
            return f"({self._condition(prefix, depth + 1)} OR {self._condition(prefix, depth + 1)})"
        if depth < 3 and kind < 0.5:
            return f"NOT ({self._condition(prefix, depth + 1)})"
        if kind < 0.53:
            return rng.choice(
                (
                    "1 = 1",
                    "1 = 0",
                    "NULL",
                    "true",
                    f"{prefix}tags = {prefix}uniqKey",
                    f"{prefix}queueId = {prefix}queueOffset",
                )
            )
        tags, others = self._of_tags, (self._of_keys, self._of_numbers, self._of_times, self._of_names)
        return rng.choice((tags, tags, *others))(prefix)

    def _of_tags(self, prefix: str) -> str:
        rng, tags = self._rng, f"{prefix}tags"
        one, other = self._text(TAGS), self._text(TAGS)
        return rng.choice((
            f"{tags} = {one}", f"{one} = {tags}", f"{tags} <> {one}", f"{tags} <=> {one}",
            f"{tags} IN ({one}, {other})",
            f"{tags} IN ({one}, NULL)", f"{tags} NOT IN ({one}, {other})", f"{tags} >= {one}", f"{tags} IS NULL",
            f"{tags} IS NOT NULL", f"{tags} LIKE 'p%'", f"{tags} LIKE '100!%' ESCAPE '!'",
            f"{tags} LIKE 'a!_b' ESCAPE '!'",
            f"{tags} RLIKE '^p'", f"upper({tags}) = {one}", f"trim({tags}) = 'pad'",
            f"{tags} COLLATE UTF8_LCASE = {one}",
            f"{tags} = {one} COLLATE UTF8_LCASE", f"{tags} COLLATE UTF8_BINARY_RTRIM = 'pad'", f"length({tags}) = 3",
            f"try_cast({tags} AS INT) = 1", f"{tags} = concat('pa', 'id')", f"coalesce({tags}, 'paid') = 'paid'",
            f"CASE WHEN {tags} = {one} THEN true ELSE {tags} IS NULL END", f"{tags} BETWEEN 'a' AND 'pad'",
            f"cast({tags} AS BINARY) = X'706164'", f"{tags} = cast('pad ' AS CHAR(4))",
            f"{tags} IN ({', '.join(self._text(TAGS) for _ in range(12))})",
        ))  # fmt: skip

    def _of_keys(self, prefix: str) -> str:
        keys = f"{prefix}keys"
        one = self._rng.choice(("'k1'", "'k2'", "'it''s'", "'all'", "''", "'é'", "' '", "'k1 k2'"))
        return self._rng.choice((
            f"array_contains({keys}, {one})", f"NOT array_contains({keys}, {one})", f"{keys} = array('k1', 'k2')",
            f"{keys} = array({one})", f"get({keys}, 0) = {one}", f"{keys} IS NULL", f"size({keys}) = 2",
            f"exists({keys}, k -> k = {one})", f"arrays_overlap({keys}, array({one}, 'k2'))",
            f"{keys} <=> array({one})",
        ))  # fmt: skip

    def _of_numbers(self, prefix: str) -> str:
        rng = self._rng
        column = prefix + rng.choice(("queueId", "queueOffset", "queueOffset", "flag", "sysFlag", "reconsumeTimes"))
        sign = rng.choice(("=", "<", "<=", ">", ">=", "<>", "<=>"))
        value = rng.choice((
            "0", "1", "2", "5", "-1", "3L", "2S", "1.0", "2.5", "1e0", "'1'", "NULL", "9223372036854775807",
            "9223372036854775808", "-9223372036854775808", "1e30", NAN, "double('Infinity')",
            "cast(1 AS DECIMAL(20, 2))",
        ))  # fmt: skip
        return rng.choice((
            f"{column} {sign} {value}", f"{value} {sign} {column}", f"{column} IN (0, 2, NULL)", f"{column} IN (1, 3L)",
            f"{column} NOT IN (1, 2)", f"{column} BETWEEN 1 AND 3", f"{column} + 1 = 2",
            f"cast({column} AS STRING) = '1'",
            f"abs({column}) > 1", f"{column} % 2 = 0", f"cast({column} AS SMALLINT) = 1S",
            f"{column} IN ({', '.join(map(str, range(0, 30, 2)))})",
        ))  # fmt: skip

    def _of_times(self, prefix: str) -> str:
        rng = self._rng
        column = prefix + rng.choice(("storeTimestamp", "bornTimestamp"))
        time_text = rng.choice(self._times)
        value = rng.choice((
            f"timestamp'{time_text}'", f"timestamp'{time_text}+00:00'", f"timestamp_ntz'{time_text}'", f"'{time_text}'",
            "current_date()", "timestamp'1969-12-31 23:59:59'", "timestamp'+12345-01-01'", "timestamp'2020-02-29'",
            f"timestamp'{time_text}' + INTERVAL 500 MICROSECOND",
            f"timestamp'{time_text} America/New_York'", f"to_utc_timestamp(timestamp'{time_text}', 'Asia/Tokyo')",
            "NULL",
        ))  # fmt: skip
        sign = rng.choice(("=", "<", "<=", ">", ">=", "<>", "<=>"))
        return rng.choice((
            f"{column} {sign} {value}", f"{value} {sign} {column}",
            f"{column} BETWEEN timestamp'{time_text}' AND current_timestamp()",
            f"date({column}) = current_date()", f"unix_millis({column}) % 2 = 0",
            f"{column} IN (timestamp'{time_text}', NULL)",
        ))  # fmt: skip

    def _of_names(self, prefix: str) -> str:
        return prefix + self._rng.choice((
            "topic = 'Orders'", "topic = 'orders'", "topic IN ('Orders', 'Payments')", "topic <> 'Orders'",
            "topic LIKE 'O%'",
            "topic = 'Orders '", "topic COLLATE UTF8_LCASE = 'ORDERS'", "topic IS NULL", "properties['n'] = '1'",
            "properties['none'] IS NULL",
            "msgId IS NOT NULL", "topic > 'Orders'", "msgId = ''",
        ))  # fmt: skip

    def _text(self, values: Sequence[str | None]) -> str:
        one = self._rng.choice(values)
        if one is None:
            return "NULL"
        return "'" + one.replace("\\", "\\\\").replace("'", "\\'") + "'"


@dataclass(frozen=True)
class Sides:
    """A session with the views of a cluster, and one that has a copy of their rows under the same names."""

    views: SparkSession
    plain: SparkSession
    times: tuple[str, ...]


def two_sides(spark: SparkSession, **views: str) -> Sides:
    """Both sides of a cluster that `fill` filled; `views` are arguments of `register`."""
    asked, plain = spark.newSession(), spark.newSession()
    for session in (asked, plain):
        for name, value in QUICK.items():
            session.conf.set(name, value)
    made = register(asked, **views)
    made.declare_json("Orders", JSON)
    times: set[str] = set()
    for topic in TOPICS:
        for name in (topic, f"{topic}_metadata"):
            frame = asked.table(name)
            rows = frame.toArrow()  # collected rows would be dictionaries where there are maps, in another order
            plain.createDataFrame(rows, frame.schema).coalesce(1).createOrReplaceTempView(name)  # a task a use
            times |= {str(row.storeTimestamp) for row in plain.table(name).select("storeTimestamp").collect()}
    ordered = sorted(times)
    some = tuple(ordered[len(ordered) * place // _TIMES] for place in range(_TIMES))
    return Sides(asked, plain, some)


@dataclass
class Found:
    """What became of queries.

    Attributes:
        different: the seeds whose answers are not the same, with the query and what is different.
        refused: how many both refuse, by condition.
    """

    different: dict[int, str] = field(default_factory=dict)
    refused: Counter[str] = field(default_factory=Counter)


def compare(sides: Sides, seeds: Iterable[int]) -> Found:
    """Ask both sides for the queries of `seeds`, in one Spark job each; queries one by one if a job fails."""
    found = Found()
    both: list[_Asked] = []
    for seed in seeds:
        text = Queries(random.Random(seed), sides.times).query()
        mine, theirs = _analysed(sides.views, text), _analysed(sides.plain, text)
        if isinstance(mine, DataFrame) and isinstance(theirs, DataFrame):
            both.append(_Asked(seed, text, mine, theirs))
        elif mine != theirs:
            found.different[seed] = f"{text}\n  views: {_said(mine)}\n  plain: {_said(theirs)}"
        else:
            found.refused[str(mine)] += 1
    _compare_rows(both, found)
    return found


class _Asked(NamedTuple):
    """A query that both sides take."""

    seed: int
    text: str
    mine: DataFrame
    theirs: DataFrame


def _compare_rows(both: Sequence[_Asked], found: Found) -> None:
    if not both:
        return
    mine, theirs = _rows([one.mine for one in both]), _rows([one.theirs for one in both])
    if isinstance(mine, str) or isinstance(theirs, str):
        if len(both) > 1:
            for half in (both[: len(both) // 2], both[len(both) // 2 :]):
                _compare_rows(half, found)
        elif isinstance(theirs, str):
            found.refused[theirs] += 1  # at run time: which rows a condition was asked of is Spark's choice
        else:
            found.different[both[0].seed] = f"{both[0].text}\n  views: {mine}"
        return
    for one, my_rows, their_rows in zip(both, mine, theirs, strict=True):
        if my_rows != their_rows:
            found.different[one.seed] = (
                f"{one.text}\n  views only: {list((my_rows - their_rows).elements())[:3]}"
                f"\n  plain only: {list((their_rows - my_rows).elements())[:3]}"
            )


def _analysed(session: SparkSession, text: str) -> DataFrame | str:
    try:
        return session.sql(text)
    except PySparkException as error:
        return error.getCondition() or type(error).__name__


def _said(found: DataFrame | str) -> str:
    return "takes it" if isinstance(found, DataFrame) else found


def _rows(frames: Sequence[DataFrame]) -> list[Counter[str]] | str:
    """The rows of each as JSON; or the condition with which Spark refuses."""
    numbered = []
    for number, frame in enumerate(frames):
        named = frame.toDF(*(f"c{place}" for place in range(len(frame.columns))))
        numbered.append(named.select(F.lit(number).alias("number"), F.to_json(F.struct("*")).alias("row")))
    while len(numbered) > 1:  # by halves: each union is analysed anew
        pairs = zip(numbered[::2], numbered[1::2], strict=False)
        numbered = [one.union(other) for one, other in pairs] + numbered[len(numbered) & ~1 :]
    found: list[Counter[str]] = [Counter() for _ in frames]
    try:
        for row in numbered[0].collect():
            found[row.number][row.row] += 1
    except SPARK_ERRORS as error:
        return plain_text(error)
    return found


@contextlib.contextmanager
def sides_of(kind: str) -> Iterator[Sides]:
    """Both sides, in a Spark session of their own, of a broker that ends with it; views read what `kind` says."""
    settings = {"spark.driver.memory": "1g", "spark.ui.enabled": "false"}
    with (
        maxq.Standalone() as server,
        local_session("queries", master="local[2]", java_options=JAVA, settings=settings) as spark,
    ):
        fill(server.namesrv_address)
        views = {"namesrv": server.namesrv_address} if kind == "wire" else {"store": str(server.store)}
        yield two_sides(spark, **views)


def tell(found: Found) -> None:
    """Print what differs."""
    for seed, text in sorted(found.different.items()):
        print(f"seed {seed}: {text}", flush=True)


def campaign(kind: str, seconds: float, needed: int) -> int:
    """Go on with the count until `needed` queries have passed or the time is over; how many differ."""
    begun, wrong, refused = time.monotonic(), 0, Counter[str]()
    count = Count(COUNTED)
    first = seed = count.next_seed(kind)
    last = first + max(0, needed - count.passed(kind))
    if seed < last:
        with sides_of(kind) as sides, ThreadPoolExecutor(_THREADS) as threads:
            while seed < last and time.monotonic() < begun + seconds:
                ranges = [range(at, min(at + _AT_ONCE, last)) for at in range(seed, last, _AT_ONCE)][:_THREADS]
                answers = threads.map(lambda seeds: compare(sides, seeds), ranges)
                for seeds, found in zip(ranges, answers, strict=True):
                    for one in seeds:
                        count.add(kind, one, failed=one in found.different)
                    wrong += len(found.different)
                    refused += found.refused
                    tell(found)
                seed = ranges[-1].stop
                count.save()
                print(f"{seed - first} queries, {wrong} differ, {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{count.passed(kind)} of {needed} {kind}; {wrong} differ; both refuse {dict(refused)}")
    return wrong


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", default="wire", choices=("wire", "store"), help="what the views read")
    parser.add_argument("--needed", type=int, default=GOAL, help="queries that are to have passed in the end")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop then")
    parser.add_argument("--first", type=int, help="ask the queries of the seeds from here on, and count nothing")
    parser.add_argument("--last", type=int, help="the last of these seeds")
    arguments = parser.parse_args()
    if arguments.first is None:
        sys.exit(1 if campaign(arguments.kind, arguments.seconds, arguments.needed) else 0)
    with sides_of(arguments.kind) as sides:
        seeds = range(arguments.first, (arguments.first if arguments.last is None else arguments.last) + 1)
        found = compare(sides, seeds)
    tell(found)
    sys.exit(1 if found.different else 0)


if __name__ == "__main__":
    main()
