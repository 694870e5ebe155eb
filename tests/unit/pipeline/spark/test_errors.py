from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException

from maxq.errors import ConfigError, PipelineError
from maxq.pipeline.spark.errors import SPARK_ERRORS, as_ours, plain_text

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


def test_error_of_ours_without_lines_of_code_is_what_is_said() -> None:
    planning = "[PYTHON_DATA_SOURCE_ERROR] Failed to plan: maxq.errors.ConfigError: rocketmq: no\n SQLSTATE: 38000"
    assert plain_text(AnalysisException(planning)) == "rocketmq: no"
    assert type(as_ours(AnalysisException(planning))) is ConfigError
    task = "Job aborted due to stage failure: org.apache.spark.api.python.PythonException: maxq.errors.DataLossError: 3"
    assert plain_text(AnalysisException(task)) == "3"


def test_wrong_setting_that_a_worker_found_is_one_here() -> None:
    setting = AnalysisException(WORKER.partition("\n\nThe above")[0])
    assert type(as_ours(setting)) is ConfigError
    assert str(as_ours(setting)) == plain_text(setting)
    assert type(as_ours(AnalysisException(WORKER))) is PipelineError
    assert type(as_ours(AnalysisException("[PARSE_SYNTAX_ERROR] at '('"))) is PipelineError


def test_of_an_error_of_java_only_the_message_is_said() -> None:
    text = (
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": org.apache.spark.SparkException: All masters are unresponsive\n\tat org.apache.spark.X$.x(S.scala:1)"
    )
    assert plain_text(Py4JError(text)) == "All masters are unresponsive"


def test_an_application_that_spark_has_ended_is_said_to_be() -> None:
    text = "Cannot call methods on a stopped SparkContext.\nThis stopped SparkContext was created at:"
    java = f"An error occurred while calling o1.x.\n: java.lang.IllegalStateException: {text}"
    for error in (Py4JError(java), AnalysisException(text)):
        assert plain_text(error).startswith("Spark has ended this application: its master does not answer (--master)")


def test_of_a_task_that_failed_in_java_only_the_cause_is_said() -> None:
    text = (
        "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0 in "
        "stage 0.0 (TID 0) (localhost executor driver): java.io.IOException: Mkdirs failed to create file:/proc/x\n"
        "\tat org.apache.hadoop.fs.ChecksumFileSystem.create(ChecksumFileSystem.java:515)"
    )
    assert plain_text(AnalysisException(text)) == "Mkdirs failed to create file:/proc/x"


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
