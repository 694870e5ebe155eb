"""The sink's option keepProperties: reserved names that rows may set."""

import pyarrow as pa
import pytest

from maxq.arrow.sink_columns import sink_rows
from maxq.errors import ConfigError
from maxq.pipeline.options.write_options import WriteOptions

_TYPE = pa.map_(pa.string(), pa.string())


def test_reserved_properties_are_left_out_but_for_those_that_are_kept() -> None:
    properties = [[("RETRY_TOPIC", "Orders"), ("DELAY", "3"), ("own", "x")]]
    batch = pa.RecordBatch.from_pydict({"body": [b"1"], "properties": pa.array(properties, _TYPE)})
    names = {"body": "body", "properties": "properties"}
    assert bytes(sink_rows(batch, names).texts.data) == b"own\x01x\x02"
    kept = sink_rows(batch, names, ("RETRY_TOPIC",))
    assert bytes(kept.texts.data) == b"RETRY_TOPIC\x01Orders\x02own\x01x\x02"


def test_only_reserved_names_that_the_sink_does_not_write_can_be_kept() -> None:
    server = {"rocketmq.namesrv": "127.0.0.1:9876"}
    parsed = WriteOptions.parse({**server, "keepProperties": "RETRY_TOPIC, ORIGIN_MESSAGE_ID", "rowsPerSecond": "0.5"})
    assert (parsed.keep_properties, parsed.rows_per_second) == (("RETRY_TOPIC", "ORIGIN_MESSAGE_ID"), 0.5)
    for names in ("own", "UNIQ_KEY"):
        with pytest.raises(ConfigError, match=f"keepProperties is '{names}'"):
            WriteOptions.parse({**server, "keepProperties": names})
