"""Trace records as Java's clients write and read them."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from maxq.errors import LocalProtocolError, RemoteProtocolError
from maxq.protocol.message.message_trace import (
    FIELDS,
    ContextCode,
    TracedMessageType,
    TraceRecord,
    TraceType,
    decode_record,
    decode_traces,
)

CAPTURED = Path(__file__).parents[3] / "data" / "trace" / "java-clients.json"
PUB = TraceRecord(
    TraceType.PUB, 1700000000000, "DefaultRegion", "PG", "T", "A1", "tag", "k1 k2", "10.0.0.1:10911", 5, 3,
    TracedMessageType.DELAY, "0A00", True,
)  # fmt: skip


def test_a_send_is_written_as_java_writes_it() -> None:
    assert PUB.encode() == (
        "Pub\x011700000000000\x01DefaultRegion\x01PG\x01T\x01A1\x01tag\x01k1 k2\x0110.0.0.1:10911\x015\x013\x013"
        "\x010A00\x01true\x02"
    )


def test_ends_of_transactions_and_listener_calls_are_written_as_java_writes_them() -> None:
    end = TraceRecord(
        TraceType.END_TRANSACTION, 7, "R", "PG", "T", "A1", store_host="h:1", message_type=2, transaction_id="x",
        transaction_state="COMMIT_MESSAGE", from_transaction_check=False,
    )  # fmt: skip
    assert (
        end.encode()
        == "EndTransaction\x017\x01R\x01PG\x01T\x01A1\x01null\x01null\x01h:1\x012\x01x\x01COMMIT_MESSAGE\x01false\x02"
    )
    after = TraceRecord(
        TraceType.SUB_AFTER, 9, group_name="CG", msg_id="A1", request_id="Q", cost_time_ms=2, success=False,
        context_code=ContextCode.FAILED,
    )  # fmt: skip
    assert after.encode() == "SubAfter\x01Q\x01A1\x012\x01false\x01null\x014\x019\x01CG\x02"


def test_every_record_that_java_clients_wrote_is_read_and_written_back_the_same() -> None:
    bodies = [row["body"] for row in json.loads(CAPTURED.read_text())]
    kinds = set()
    for body in bodies:
        records, faults = decode_traces(body.encode())
        assert not faults
        assert "".join(record.encode() for record in records) == body
        kinds |= {record.trace_type for record in records}
    assert kinds == set(TraceType) - {TraceType.RECALL}


@pytest.mark.parametrize(
    ("tail", "offset_msg_id", "success", "host"),
    [
        (["true"], None, True, None),
        (["0A", "false"], "0A", False, None),
        (["0A", "true", "10.0.0.9"], "0A", True, "10.0.0.9"),
    ],
)
def test_sends_of_older_and_other_clients_are_read(
    tail: list[str], offset_msg_id: str | None, success: bool, host: str | None
) -> None:
    fields = ["Pub", "1", "R", "PG", "T", "A1", "null", "", "h", "5", "3", "0", *tail]
    record = decode_record("\x01".join(fields))
    assert (record.offset_msg_id, record.success, record.client_host) == (offset_msg_id, success, host)
    assert (record.tags, record.keys) == (None, None)


def test_consumptions_of_older_clients_and_of_the_cloud_are_read() -> None:
    old = decode_record("SubAfter\x01Q\x01A1\x012\x01true\x01k")
    assert (old.context_code, old.timestamp, old.group_name, old.keys) == (None, None, None, "k")
    cloud = decode_record("SubAfter\x01Q\x01A1\x012\x01true\x01k\x010\x01")
    assert (cloud.context_code, cloud.timestamp) == (0, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Publish\x011", "unknown kind 'Publish'"),
        ("Recall\x011\x01R\x01PG\x01T\x01A1", "has 6 fields, at least 7"),
        ("SubBefore\x01x\x01R\x01G\x01Q\x01A\x010\x01k", "timestamp of a SubBefore record is no number: 'x'"),
        ("SubBefore\x011\n\x01R\x01G\x01Q\x01A\x010\x01k", "timestamp of a SubBefore record is no number"),
    ],
)
def test_what_is_no_record_is_named(text: str, said: str) -> None:
    with pytest.raises(RemoteProtocolError, match=said):
        decode_record(text)


def test_a_damaged_record_does_not_hide_its_neighbours() -> None:
    records, faults = decode_traces((PUB.encode() + "Pub\x01no\x02" + PUB.encode()).encode())
    assert records == [PUB, PUB]
    assert [fault.text for fault in faults] == ["Pub\x01no"]


def test_a_field_with_a_separator_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="U\\+0001"):
        TraceRecord(TraceType.RECALL, 1, "R", "PG", "T", "A\x01B", success=True).encode()


TEXT = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1).filter(
    lambda text: text != "null"
)


@given(kind=st.sampled_from(TraceType), texts=st.lists(TEXT, min_size=9, max_size=9), number=st.integers(0, 10**17))
def test_what_is_written_is_read_again(kind: TraceType, texts: list[str], number: int) -> None:
    record = TraceRecord(
        kind, number, *texts[:6], store_host=texts[6], body_length=1, cost_time_ms=2, message_type=1, success=True,
        request_id=texts[7], retry_times=3, context_code=4, transaction_id=texts[8], transaction_state="UNKNOW",
        from_transaction_check=True,
    )  # fmt: skip
    again = decode_record(record.encode()[:-1])
    assert again.encode() == record.encode()
    assert again.msg_id == record.msg_id and again.timestamp == number and len(FIELDS) == len(TraceType)


@given(st.binary(max_size=300))
def test_any_bytes_are_records_and_faults(data: bytes) -> None:
    records, faults = decode_traces(data)
    assert len(records) + len(faults) <= data.count(b"\x02") + 1
