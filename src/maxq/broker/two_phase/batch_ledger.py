"""A broker's knowledge of staged batches, which comes only from the entries of its ledger, read one after the other.

An entry is a JSON object with `kind`, `application` and `batch`:

    claim        `coordinator`: the broker that decides for the application, written at all brokers before it first does
    decision     (coordinator) which attempts the batch consists of, on all brokers: the point of no return
    delivery     (every broker of the decision) `runs`: its staged requests, in the order of delivery
    step         the messages of request `piece` (of `messages`, if there are such: these only) follow in the log,
                 directly behind this entry; all others of it and of those before are delivered. `lost`: messages that
                 could not be, so far
    done         all are delivered
    application  what the ledger knew of an application, whole: entries before it need not be read
    snapshot     `first`: the queue offset of the first of the application entries that belong together, `offset`: its
                 physical offset. `names`: digests of all their applications, so that one whose entry can not be read is
                 known to be missing. `lost`: applications of which that was found before

So a broker that starts, or a slave that becomes master, knows what was delivered: everything before the last step, and
the part of that step that is found behind it in the log (batch_delivery.py).
"""

from collections.abc import Iterable
from dataclasses import field
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Self

from maxq.errors import RemoteProtocolError
from maxq.lazy_dataclass import dataclass

CLAIM: Final = "claim"
DECISION: Final = "decision"
DELIVERY: Final = "delivery"
STEP: Final = "step"
DONE: Final = "done"
APPLICATION: Final = "application"
SNAPSHOT: Final = "snapshot"

_FORGET_MS: Final = 30 * 24 * 3_600_000
#: A ledger knows so many applications at most.
MOST_APPLICATIONS: Final = 20_000


class StagedRun(NamedTuple):
    """`length` requests of an attempt with consecutive sequence numbers and queue offsets."""

    attempt: str
    sequence: int
    queue_offset: int
    length: int


class StagedRequest(NamedTuple):
    """The queue offset of a send request that was staged for a batch, and the attempt to which it belongs."""

    attempt: str
    sequence: int
    queue_offset: int


def read_runs(value: Any) -> list[StagedRun]:
    """Read runs from JSON: [[attempt, sequence, queue offset, length], …]. Raises RemoteProtocolError."""
    runs: list[StagedRun] = []
    for one in value if isinstance(value, list) else [value]:
        is_run = isinstance(one, list) and len(one) == 4 and isinstance(one[0], str)
        if not is_run or not all(type(number) is int and number >= 0 for number in one[1:]):
            raise RemoteProtocolError(f"{one!r:.80} is no [attempt, sequence, queue offset, length]")
        runs.append(StagedRun(*one))
    return runs


@dataclass
class BatchDelivery:
    """A broker's part of a decided batch.

    Attributes:
        piece: number of the request; all before it are delivered or lost.
        messages: the messages of this request that are not delivered or lost; None: all of it is open.
        step_end: physical offset behind the step entry that began it; -1: what is said above is certain. Otherwise some
            of the open messages may be in the log from there on.
    """

    batch: int
    runs: list[StagedRun]
    piece: int = 0
    messages: list[int] | None = None
    lost: int = 0
    done: bool = False
    step_end: int = -1

    @property
    def count(self) -> int:
        return sum(run.length for run in self.runs)

    def piece_at(self, number: int) -> StagedRequest:
        for run in self.runs:
            if number < run.length:
                return StagedRequest(run.attempt, run.sequence + number, run.queue_offset + number)
            number -= run.length
        raise AssertionError("the delivery has no such piece")

    def to_json(self) -> dict[str, Any]:
        return {
            "batch": self.batch, "runs": [list(run) for run in self.runs], "piece": self.piece,
            "messages": self.messages, "lost": self.lost, "done": self.done, "stepEnd": self.step_end,
        }  # fmt: skip

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        return cls(
            value["batch"], read_runs(value["runs"]), value["piece"], value["messages"], value["lost"],
            value["done"], value["stepEnd"],
        )  # fmt: skip


@dataclass
class Application:
    """The state of one writer.

    Attributes:
        batch: the last batch that was decided here; None: no batch was, because this broker is not the coordinator.
        decision: the decision about that batch, unchanged.
        decision_end: physical offset behind the entry of the decision.
        last_ms: wall time of the last entry.
        coordinator: name of the broker that decides; empty: not known here.
        damaged_at: physical offset of a damaged entry that may have been this application's, and later than all that
            are known of it; -1: there is none.
    """

    batch: int | None = None
    decision: dict[str, Any] = field(default_factory=dict)
    decision_end: int = 0
    delivery: BatchDelivery | None = None
    last_ms: int = 0
    coordinator: str = ""
    damaged_at: int = -1

    @property
    def is_unknown(self) -> bool:
        """Return whether the ledger has no entry of this application, or only entries that mean nothing without lost
        earlier ones."""
        return self.batch is None and self.delivery is None and not self.coordinator

    def to_json(self) -> dict[str, Any]:
        return {
            "decided": self.batch, "decision": self.decision, "decisionEnd": self.decision_end,
            "delivery": None if self.delivery is None else self.delivery.to_json(), "lastMs": self.last_ms,
            "coordinator": self.coordinator, "damagedAt": self.damaged_at,
        }  # fmt: skip

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        delivery = value["delivery"]
        return cls(
            value["decided"], value["decision"], value["decisionEnd"],
            None if delivery is None else BatchDelivery.from_json(delivery), value["lastMs"],
            value.get("coordinator", ""), value.get("damagedAt", -1),
        )  # fmt: skip


class BatchLedger:
    """The state that follows from all entries of the ledger of one broker."""

    def __init__(self, own_name: str) -> None:
        self._own_name = own_name
        self._skipped_at = -1  # physical offset of the last entry that can not be read
        self.applications: dict[str, Application] = {}
        # digest of an application's name, of which nothing else is known → physical offset of the unreadable record,
        # and when it was found (ms since 1970)
        self._lost: dict[str, tuple[int, int]] = {}
        self._copy_at = -1  # physical offset of the last copy that can not be read

    def application(self, name: str) -> Application:
        """Return the state of an application; a new one if nothing is known of it."""
        known = self.applications.get(name)
        if known is not None:
            return known
        at, _ = self._lost.get(_digest(name), (-1, 0)) if self._lost else (-1, 0)
        return Application(damaged_at=at)

    def take(self, entry: dict[str, Any], end_offset: int, now_ms: int) -> None:
        """Apply the next entry.

        Args:
            end_offset: physical offset behind its record.
            now_ms: its store timestamp.
        """
        kind, name = entry["kind"], entry.get("application", "")
        if kind == SNAPSHOT:
            self._note_lost(entry, now_ms)
            return
        if kind == APPLICATION:
            self.applications[name] = Application.from_json(entry["state"])
            return
        application = self.applications[name] = self.application(name)
        application.last_ms = now_ms
        if kind == CLAIM:
            application.coordinator = entry["coordinator"]
            return
        if kind == DECISION:
            application.batch, application.decision = entry["batch"], entry["decision"]
            application.decision_end = end_offset
            application.damaged_at = -1  # all batches before this one are decided now
            return
        if kind == DELIVERY:
            application.delivery = BatchDelivery(entry["batch"], read_runs(entry["runs"]))
        elif not self._go_on(application.delivery, entry, end_offset):
            if application.is_unknown:  # the beginning of its delivery cannot be read, or has expired
                application.damaged_at = max(application.damaged_at, self._skipped_at)
            return
        decides_elsewhere = application.batch is None and application.coordinator != self._own_name
        if decides_elsewhere or application.batch == entry["batch"]:
            application.damaged_at = -1

    def skip(self, physical_offset: int, kind: str) -> None:
        """Note that the next entry is damaged: of any application that may have had an entry of this kind there.

        Args:
            kind: "": it is not known.
        """
        self._skipped_at = physical_offset
        for application in self.applications.values():
            if not kind or self._may_be_next(application, kind):
                application.damaged_at = physical_offset

    def _may_be_next(self, application: Application, kind: str) -> bool:
        """Return whether an entry of this kind can follow what is known of an application."""
        delivery = application.delivery
        if kind in (STEP, DONE):
            return delivery is not None and not delivery.done
        if kind == CLAIM:
            return not application.coordinator
        if kind == DECISION:
            return application.batch is not None or application.coordinator in ("", self._own_name)
        if application.batch is None:  # a delivery
            return True
        return delivery is None or delivery.batch != application.batch

    def lose_copy(self, physical_offset: int) -> None:
        """Note that the next entry, one of a snapshot, is damaged. It is missed if its original has expired."""
        self._copy_at = physical_offset

    def _note_lost(self, snapshot: dict[str, Any], now_ms: int) -> None:
        """Note the applications of a snapshot of which neither its entry nor earlier ones could be read."""
        self._lost |= {name: (at, found_ms) for name, (at, found_ms) in snapshot.get("lost", {}).items()}
        known = {_digest(name): application for name, application in self.applications.items()}
        at = self._copy_at if self._copy_at >= 0 else snapshot["offset"]
        for name in snapshot.get("names", ()):
            application = known.get(name)
            if application is None:
                self._lost[name] = at, now_ms
            elif application.is_unknown:
                application.damaged_at = at
        self._copy_at = -1

    @staticmethod
    def _go_on(delivery: BatchDelivery | None, entry: dict[str, Any], end_offset: int) -> bool:
        """Apply an entry to a delivery; returns whether it is of that one."""
        if delivery is None or delivery.batch != entry["batch"]:
            return False  # the record with its beginning has expired, or is damaged
        delivery.lost = entry["lost"]
        if entry["kind"] == DONE:
            delivery.done, delivery.step_end = True, -1
        else:
            delivery.piece, delivery.messages, delivery.step_end = entry["piece"], entry["messages"], end_offset
        return True

    def snapshot(self, now_ms: int) -> list[dict[str, Any]]:
        """Return application entries that give the same state, without writers inactive for 30 days."""
        return [
            {"kind": APPLICATION, "application": name, "state": application.to_json()}
            for name, application in self.applications.items()
            if now_ms - application.last_ms < _FORGET_MS
        ]

    def end_of_snapshot(self, entries: Iterable[dict[str, Any]], now_ms: int) -> dict[str, Any]:
        """Return `names` and `lost` of the entry behind those of a snapshot."""
        known = {_digest(name) for name in self.applications}
        lost = {
            name: [at, found_ms]
            for name, (at, found_ms) in self._lost.items()
            if name not in known and now_ms - found_ms < _FORGET_MS
        }
        return {"names": [_digest(entry["application"]) for entry in entries], "lost": lost}


def _digest(name: str) -> str:
    return blake2b(name.encode(), digest_size=8).hexdigest()
