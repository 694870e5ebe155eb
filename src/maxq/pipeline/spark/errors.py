"""Extracts the cause of a failure from Spark's errors.

An error of a data source reaches the program as text: the traceback of a Python worker inside a Java exception.
"""

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from maxq.errors import ConfigError, MaxQError, PipelineError

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JError)

_OURS = re.compile(r"(?:^|: )maxq(?:\.\w+)*\.(\w+): (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?!Caused by)(\w+(?:\.\w+)*(?:Error|Exception): .+)$", re.MULTILINE)
_JAVA = re.compile(r"^: (?:\w+\.)+\w+: (.+)$", re.MULTILINE)
# the error of a failed task, in Java's text
_LOST_TASK = re.compile(r"most recent failure: .*?: (?:\w+\.)+\w+: (.+)$", re.MULTILINE)
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'$")
_STOPPED = "Cannot call methods on a stopped SparkContext"
_MAX = 600


def plain_text(error: Exception) -> str:
    """Return one line: the error of MaxQ's code in a worker if that failed, else the beginning of Spark's own
    message."""
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return _line(ours[-1][1])
    if "Traceback (most recent call last)" in text:
        raised = _PYTHON.findall(text)
        if raised:
            return _with_remedy(_line(raised[0]))
    lost = _LOST_TASK.search(text)
    if lost is not None:
        return _line(lost[1])
    if _STOPPED in text:
        return "Spark has ended this application: its master does not answer (--master), or has taken it down"
    java = _JAVA.search(text) if isinstance(error, Py4JError) else None
    if java is not None:  # raised before there is a session, where Spark does not make it a Python exception
        return _line(java[1])
    for rest in ("\n\nJVM stacktrace", "\n== SQL", "; line "):
        text = text.partition(rest)[0]
    return _line(text or type(error).__name__)


def as_ours(error: Exception) -> MaxQError:
    """Convert the error to an error of MaxQ: a wrong setting that was found in a worker stays one."""
    found = _OURS.findall(str(error))
    is_setting = bool(found) and found[-1][0] == ConfigError.__name__
    return (ConfigError if is_setting else PipelineError)(plain_text(error))


def _with_remedy(text: str) -> str:
    """Add the remedy for an error: workers run a Python of their own, which may lack packages of the driver's."""
    missing = _MISSING.match(text)
    if missing is None:
        return text
    return (
        f"the Python of Spark's workers (PYSPARK_PYTHON) has no module {missing[1]}: install it there, or let an "
        "environment travel with the job (docs/howto/spark-cluster.md)"
    )


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX else text[:_MAX] + "…"
