"""The programs in examples/spark do what they say."""

import pytest
from examples.spark import batch, exactly_once
from pyspark.sql import SparkSession

from maxq.testing.server_process import StandaloneProcess


def test_a_topic_is_a_table_and_a_stream_writes_another_one_exactly_once(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with StandaloneProcess() as server:
        monkeypatch.setenv("NAMESRV_ADDR", server.namesrv_address)
        batch.main(spark)
        exactly_once.main(spark)
    shown = capsys.readouterr().out
    assert "|  jam|  100|" in shown and "100 sales of jam" in shown
    assert "100 long clicks written" in shown
