"""What went wrong, out of Spark's errors.

An error of a data source reaches the program as text: the traceback of a Python worker inside a Java exception.
"""

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

SPARK_ERRORS: tuple[type[Exception], ...] = (PySparkException, Py4JError)

_OURS = re.compile(r"^(?:\w+: )?maxq(?:\.\w+)+: (.+)$", re.MULTILINE)
_PYTHON = re.compile(r"^(?!Caused by)(\w+(?:\.\w+)*(?:Error|Exception): .+)$", re.MULTILINE)
_MISSING = re.compile(r"^ModuleNotFoundError: No module named '([\w.]+)'$")
_MAX = 600


def plain_text(error: Exception) -> str:
    """One line: what MaxQ's code in a worker said if it was that which failed, else Spark's own first words."""
    text = str(error)
    ours = _OURS.findall(text)
    if ours:
        return _line(ours[-1])
    if "Traceback (most recent call last)" in text:
        raised = _PYTHON.findall(text)
        if raised:
            return _with_remedy(_line(raised[0]))
    return _line(text.partition("\n\nJVM stacktrace")[0].partition("; line ")[0] or type(error).__name__)


def _with_remedy(text: str) -> str:
    """Workers run a Python of their own, which may have less than the driver's."""
    missing = _MISSING.match(text)
    if missing is None:
        return text
    return (
        f"the Python of Spark's workers (PYSPARK_PYTHON) has no module {missing[1]}: install it there, or let an "
        'environment travel with the job (docs/pipeline.md, "More than one machine")'
    )


def _line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX else text[:_MAX] + "…"
