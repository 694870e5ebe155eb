"""A Spark session for commands, notebooks, tests and examples.

    from maxq.pipeline.session import local_session

    spark = local_session()
    spark.read.format("rocketmq").option("rocketmq.namesrv", "127.0.0.1:9876").option("subscribe", "Orders").load()

A program that `spark-submit` started keeps the master and the settings it was submitted with, and only what the formats
need is set. Anywhere else the session is a local one: no web pages, nothing listens outside this machine, errors only,
Java from where `maxq.pipeline.spark.java` finds it, and Python workers that import PySpark as it is installed
(`maxq.pipeline.spark.home`).
"""

import logging
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import wraps
from importlib import resources
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import DataFrameWriter, SparkSession
from pyspark.sql.utils import is_remote

from maxq.pipeline.spark.errors import plain_text
from maxq.pipeline.spark.home import own_spark_home
from maxq.pipeline.spark.java import find_java, make_java_home

#: For every session: what the formats need.
NEEDED = {"spark.sql.execution.arrow.pyspark.enabled": "true"}
_LOOPBACK = "127.0.0.1"
_LOGGING = Path(__file__).with_name("log4j2.properties")
_RULE = "NarrowReads"

log = logging.getLogger(__name__)


def local_session(
    app_name: str = "maxq",
    *,
    master: str | None = None,
    driver_memory: str = "1g",
    java_options: str = "",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the session of this process, started if there is none.

    Args:
        app_name: what Spark calls the application.
        master: such as local[2] or spark://host:7077; None is the one of spark-submit, else all cores of this machine.
        driver_memory: heap of the Java process, which in a local session also runs the tasks.
        java_options: for that process, such as -XX:TieredStopAtLevel=1 where it does little and is to start soon.
        settings: Spark's, on top of ours.

    Raises:
        JavaNotFoundError: no Java that Spark runs on.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        return prepare(running)
    with _settings(app_name, master, driver_memory, java_options) as ours:
        return prepare(SparkSession.builder.config(map={**ours, **(settings or {})}).getOrCreate())


@contextmanager
def using_session(
    app_name: str = "maxq", *, master: str | None = None, driver_memory: str = "1g"
) -> Iterator[SparkSession]:
    """Open `local_session` for a block; afterwards the session is ended if it was started here.

    The handler of Ctrl-C is not changed: PySpark replaces it when the main thread creates the context of a session, so
    another thread creates it.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        yield prepare(running)
        return
    with _settings(app_name, master, driver_memory, "") as ours:
        with ThreadPoolExecutor(1) as other_thread:
            other_thread.submit(SparkContext.getOrCreate, SparkConf().setAll([*ours.items()])).result()
        session = prepare(SparkSession.builder.config(map={**ours}).getOrCreate())
    try:
        yield session
    finally:
        with suppress(ConnectionError, Py4JNetworkError):  # the Java process is gone, and the session with it
            session.stop()


@contextmanager
def _settings(app_name: str, master: str | None, driver_memory: str, java_options: str) -> Iterator[dict[str, str]]:
    """Yield Spark's settings for a session that is started in the block."""
    chosen = {**NEEDED, "spark.app.name": app_name}
    if not _is_submitted():
        os.environ["JAVA_HOME"] = str(make_java_home(find_java()))
        master = master or "local[*]"
        chosen |= _quiet_settings(driver_memory, java_options)
        if _is_local(master):
            os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
            chosen |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
        # Spark prints every refused query as JSON with its Java stack, beside raising it.
        PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL + 1)
    if master is not None:
        chosen["spark.master"] = master
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    has_our_python = os.environ["PYSPARK_PYTHON"] == sys.executable
    with own_spark_home() if _is_local(master) and has_our_python else nullcontext():
        yield chosen


def prepare(spark: SparkSession) -> SparkSession:
    """Set the options that the formats need in any session, and return it."""
    for name, value in NEEDED.items():
        spark.conf.set(name, value)
    if not is_remote():  # with Spark Connect the session is in another process
        _use_this_python(spark)
        _write_from_any_thread()
        _add_rule(spark)
    return spark


def _use_this_python(spark: SparkSession) -> None:
    """Make a local session's workers run this Python, unless another one is configured. Spark takes the first `python3`
    on PATH, which is this one only in an activated environment."""
    context = spark.sparkContext
    is_told = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if _is_local(context.master) and not is_told:
        context.pythonExec = sys.executable
        spark.conf.set("spark.sql.execution.pyspark.python", sys.executable)


def _write_from_any_thread() -> None:
    """Make `df.write.save` set its session as the active one of its thread, as `createDataFrame` does: Spark looks up
    formats written in Python only in the active session, which threads other than the first lack
    (DATA_SOURCE_NOT_FOUND)."""
    save = DataFrameWriter.save
    if hasattr(save, "__wrapped__"):
        return

    @wraps(save)
    def save_in_session(writer: DataFrameWriter, *arguments: Any, **named: Any) -> None:
        session = writer._spark
        assert session._jvm is not None, "a session that is not remote has a Java"
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)
        save(writer, *arguments, **named)

    DataFrameWriter.save = save_in_session  # type: ignore[assignment, method-assign]


def _add_rule(spark: SparkSession) -> None:
    """Make the session's queries read only the columns that they use and the rows that their conditions select.

    The rule is spark/NarrowReads.java. Sessions without it read all columns of all rows; results are the same.
    """
    experimental = spark._jsparkSession.experimental()
    rules = experimental.extraOptimizations()
    present = [rules.apply(place) for place in range(rules.size())]
    if any(rule.getClass().getSimpleName() == _RULE for rule in present):
        return
    source = resources.files("maxq.pipeline.spark").joinpath(f"{_RULE}.java").read_text()
    java = spark._jvm
    assert java is not None, "a session that is not remote has a Java"
    try:
        compiler = java.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(java.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
        compiler.cook(source)
        rule = compiler.getClassLoader().loadClass(f"maxq.{_RULE}").getConstructor(None).newInstance(None)
    except Py4JNetworkError:  # Java is gone
        raise
    except Py4JError as error:
        log.warning("queries read all columns of topics, because Spark's optimizer is unknown: %s", plain_text(error))
        return
    getattr(experimental, "extraOptimizations_$eq")(java.PythonUtils.toSeq([*present, rule]))


def _is_local(master: str | None) -> bool:
    return master is not None and master.startswith("local")


def _is_submitted() -> bool:
    """Return whether spark-submit, pyspark or a cluster's launcher started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _quiet_settings(driver_memory: str, java_options: str) -> dict[str, str]:
    work = Path(tempfile.gettempdir()) / f"maxq-spark-{os.getuid()}"
    return {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": driver_memory,
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()} {java_options}".strip(),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
    }
