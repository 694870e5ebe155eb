"""A SPARK_HOME without the zip of PySpark."""

import os
from pathlib import Path

import pyspark
import pytest

from maxq.pipeline.spark.home import make_spark_home, own_spark_home


@pytest.fixture(autouse=True)
def empty_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)


def test_it_has_all_of_the_package_but_the_zips() -> None:
    package = Path(pyspark.__path__[0])
    home = make_spark_home(package)
    assert home is not None
    assert {entry.name for entry in home.iterdir()} == {entry.name for entry in package.iterdir()} - {"python"}
    assert (home / "bin" / "spark-submit").is_file()
    assert make_spark_home(package) == home


def test_links_that_lead_elsewhere_are_made_anew(tmp_path: Path) -> None:
    package = Path(pyspark.__path__[0])
    home = make_spark_home(package)
    assert home is not None
    (home / "jars").unlink()
    (home / "jars").symlink_to(tmp_path)
    (home / "bin").unlink()
    assert make_spark_home(package) == home
    assert (home / "jars").resolve() == (package / "jars").resolve()
    assert (home / "bin").is_dir()


def test_what_is_no_whole_spark_gets_none(tmp_path: Path) -> None:
    assert make_spark_home(tmp_path) is None


def test_it_is_set_for_the_start_only_and_what_was_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with own_spark_home():
        assert "maxq-spark-" in os.environ["SPARK_HOME"]
    assert "SPARK_HOME" not in os.environ
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    with own_spark_home():
        assert os.environ["SPARK_HOME"] == "/opt/spark"
    assert os.environ["SPARK_HOME"] == "/opt/spark"
