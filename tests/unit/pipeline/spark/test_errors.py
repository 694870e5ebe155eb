from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException

from maxq.pipeline.spark.errors import SPARK_ERRORS, plain_text

WORKER = """[PYTHON_DATA_SOURCE_ERROR] Failed to plan Python data source rocketmq: Traceback (most recent call last):
  File "/x/pyspark/sql/worker/plan_data_source_read.py", line 98, in worker_run
    main(infile, outfile)
  File "/x/maxq/pipeline/options/read_options.py", line 12, in parse
    raise values.wrong(name, text, allowed)
maxq.errors.ConfigError: rocketmq: option readFrom is 'tape'; it must be one of auto, broker

The above exception was the direct cause of the following exception:
maxq.errors.PipelineError: nothing   can be read: readFrom
 SQLSTATE: 38000
"""


def test_error_of_ours_in_a_worker_is_what_is_said() -> None:
    assert plain_text(AnalysisException(WORKER)) == "nothing can be read: readFrom"
    first = WORKER.partition("\n\nThe above")[0]
    assert plain_text(AnalysisException(first)).startswith("rocketmq: option readFrom is 'tape'")


def test_error_of_somebody_elses_in_a_worker_is_its_last_line() -> None:
    text = 'Traceback (most recent call last):\n  File "x.py", line 3, in read\nValueError: bad day\n SQLSTATE: 38000'
    assert plain_text(AnalysisException(text)) == "ValueError: bad day"


def test_module_that_workers_lack_is_named_with_the_remedy() -> None:
    text = (
        "Traceback (most recent call last):\n  File \"w.py\", line 3\nModuleNotFoundError: No module named 'orjson'\n x"
    )
    found = plain_text(AnalysisException(text))
    assert found.startswith("the Python of Spark's workers (PYSPARK_PYTHON) has no module orjson: install it there")


def test_error_of_spark_is_its_first_words() -> None:
    text = "[UNRESOLVED_COLUMN] no `x`. SQLSTATE: 42703; line 1 pos 7;\n'Project ['x]\n\nJVM stacktrace:\norg.apache"
    assert plain_text(AnalysisException(text)) == "[UNRESOLVED_COLUMN] no `x`. SQLSTATE: 42703"
    assert plain_text(Py4JError("")) == "Py4JError"
    assert len(plain_text(AnalysisException("x" * 5000))) == 601


def test_spark_and_java_errors_are_caught() -> None:
    assert issubclass(AnalysisException, SPARK_ERRORS)
    assert issubclass(Py4JError, SPARK_ERRORS)
    assert not issubclass(ValueError, SPARK_ERRORS)
