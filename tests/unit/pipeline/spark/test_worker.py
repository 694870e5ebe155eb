"""maxq.pipeline.spark.worker."""

import subprocess
import sys

CODE = """
import gc, sys
sys.modules["__main__"].__spec__ = type("Spec", (), {"name": sys.argv[1]})
from maxq.pipeline.spark.worker import freeze_modules, then_freeze_modules
freeze_modules()
first = gc.get_freeze_count()
kept = [[] for _ in range(1000)]
freeze_modules()
print(first > 1000, gc.get_freeze_count() <= first)
def load():
    import wave
    yield 1
assert list(then_freeze_modules(load())) == [1]
print(gc.get_freeze_count() > first)
"""


def frozen(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", CODE, program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_worker_s_modules_are_frozen_whenever_there_are_new_ones_and_nothing_else() -> None:
    assert frozen("pyspark.daemon") == ["True", "True", "True"]


def test_no_other_program_s_collector_is_touched() -> None:
    assert frozen("notebook") == ["False", "True", "False"]


RAISING = """
import os, sys
sys.modules["__main__"].__spec__ = type("Spec", (), {"name": sys.argv[1]})
from maxq.errors import ConfigError
from maxq.pipeline.spark.worker import readable_errors, then_freeze_modules

@readable_errors
class Source:
    def schema(self):
        raise KeyError("not ours")

    def reader(self):
        raise ConfigError("ours")

    def read(self):
        return then_freeze_modules(self.rows())

    def rows(self):
        yield 1
        raise ConfigError("ours")

for call in (Source().schema, Source().reader, lambda: list(Source().read())):
    os.environ.pop("SPARK_HIDE_TRACEBACK", None)
    try:
        call()
    except (KeyError, ConfigError):
        print("SPARK_HIDE_TRACEBACK" in os.environ)
"""


def hidden(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", RAISING, program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_errors_of_ours_come_without_lines_of_code_from_workers_and_nothing_else() -> None:
    assert hidden("pyspark.daemon") == ["False", "True", "True"]
    assert hidden("notebook") == ["False", "False", "False"]
