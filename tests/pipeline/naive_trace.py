"""A second, naive reading of trace messages: lists and dictionaries, no Spark."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from maxq.pipeline.transforms.latency import PERCENTILES

TYPES = ["Normal", "Trans", "TransCommit", "Delay", "Order"]
OUTCOMES = ["SUCCESS", "TIME_OUT", "EXCEPTION", "RETURNNULL", "FAILED"]


def body(*records: Sequence[object]) -> bytes:
    """A trace message's body, as TraceDataEncoder makes it."""
    return "".join("\x01".join(map(str, record)) + "\x02" for record in records).encode()


def pub(
    at: int,
    message_id: str,
    topic: str = "T",
    group: str = "PG",
    *,
    tags: str = "null",
    keys: str = "null",
    cost: int = 4,
    kind: int = 0,
    success: bool = True,
    host: str = "10.0.0.9:10911",
    size: int = 100,
) -> list[object]:
    return ["Pub", at, "DefaultRegion", group, topic, message_id, tags, keys, host, size, cost, kind, "0A0B",
            str(success).lower()]  # fmt: skip


def begun(at: int, request: str, message_id: str, group: str = "CG", retry: int = 0) -> list[object]:
    return ["SubBefore", at, "DefaultRegion", group, request, message_id, retry, "null"]


def ended(
    at: int, request: str, message_id: str, group: str = "CG", cost: int = 3, success: bool = True
) -> list[object]:
    return ["SubAfter", request, message_id, cost, str(success).lower(), "null", 0 if success else 4, at, group]


def transaction(at: int, message_id: str, state: str, topic: str = "T", group: str = "PG") -> list[object]:
    return ["EndTransaction", at, "DefaultRegion", group, topic, message_id, "null", "null", "h:1", 2, "tx1", state,
            "false"]  # fmt: skip


def recall(at: int, message_id: str, topic: str = "T", success: bool = True) -> list[object]:
    return ["Recall", at, "DefaultRegion", "PG", topic, message_id, str(success).lower()]


def parse(data: bytes) -> list[dict[str, Any]]:
    """The records of a body; broken ones have only a fault."""
    found = []
    for record in data.decode("utf-8", "replace").split("\x02"):
        if record:
            try:
                found.append(_record([*record.split("\x01")]))
            except (ValueError, IndexError, KeyError):
                found.append({"fault": True})
    return found or [{"fault": True}]


def _record(fields: list[str]) -> dict[str, Any]:
    def text(at: int) -> str | None:
        return None if fields[at] in ("", "null") else fields[at]

    kind = fields[0]
    if kind == "SubAfter":
        row = {"requestId": text(1), "messageId": text(2), "costMs": int(fields[3]), "success": fields[4] == "true"}
        if len(fields) >= 7 and fields[6]:
            row["outcome"] = OUTCOMES[int(fields[6])]
        if len(fields) >= 9:
            row |= {"at": int(fields[7]), "groupName": text(8)}
        _ = fields[5]
        return {"kind": kind, **row}
    row = {"kind": kind, "at": int(fields[1]), "groupName": text(3)}
    if kind == "Pub":
        row |= {"topic": text(4), "messageId": text(5), "tags": text(6), "costMs": int(fields[10])}
        row |= {"bodyLength": int(fields[9]), "messageType": TYPES[int(fields[11])]}
        row |= {"success": fields[13 if len(fields) > 13 else 12] == "true"}
    elif kind == "SubBefore":
        row |= {"requestId": text(4), "messageId": text(5), "retryTimes": int(fields[6])}
        _ = fields[7]
    elif kind == "EndTransaction":
        row |= {"topic": text(4), "messageId": text(5), "messageType": TYPES[int(fields[9])]}
        row |= {"transactionState": fields[11], "fromCheck": fields[12] == "true"}
    elif kind == "Recall":
        row |= {"topic": text(4), "messageId": text(5), "success": fields[6] == "true"}
    else:
        raise KeyError(kind)
    return row


def percentiles(values: Iterable[int]) -> list[int]:
    """Return the percentiles of the values, each by the nearest rank."""
    ordered = sorted(values)
    return [ordered[max(math.ceil(share * len(ordered)) - 1, 0)] for share in PERCENTILES.values()]


def latency_rows(records: list[dict[str, Any]], clients: list[str]) -> dict[tuple[str, ...], list[int]]:
    """(measure, topic, group, client) → durations, of records that come once each; `clients` has one for each."""
    found: dict[tuple[str, ...], list[int]] = defaultdict(list)
    sent: dict[str, dict[str, Any]] = {}
    committed = {r["messageId"]: r["at"] for r in records if r.get("transactionState") == "COMMIT_MESSAGE"}
    for record, client in zip(records, clients, strict=True):
        if record.get("kind") == "Pub":
            for message_id in record["messageId"].split(","):
                sent[message_id] = record
                key = (record["topic"], record["groupName"], client)
                found["send", *key].append(record["costMs"])
                found["store", *key].append(record["costMs"] // 2)
    ends = {(r["requestId"], r["messageId"]): r for r in records if r.get("kind") == "SubAfter"}
    for record, client in zip(records, clients, strict=True):
        if record.get("kind") != "SubBefore":
            continue
        of = sent.get(record["messageId"])
        key = (of["topic"] if of else None, record["groupName"], client)
        end = ends.get((record["requestId"], record["messageId"]))
        if end is not None:
            found["consume", *key].append(end["costMs"])
        if of is None or record["retryTimes"] > 0 or of["messageType"] == "Delay":
            continue
        since = committed.get(record["messageId"]) if of["messageType"] == "Trans" else of["at"]
        if since is not None:
            found["deliver", *key].append(record["at"] - since)
    return found
