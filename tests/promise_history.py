"""What clients were told, of every kind, and whether it was kept: one history for simulated clusters and for real ones.

A client notes each request when it is sent and when it is answered; times are of one clock. `broken` then names every
promise that was not kept:

* **reign**: who answers for a group does so alone. An answer of one broker to a request that was sent after another one
  had answered, and that was there before that other one answered again, is out of turn, if that other one led all the
  time: its role did not change, as far as the history was told, or it answered again a moment later.
* **lock**: a queue belongs to one client until he gives it back, his time is over, or another broker speaks.
* **offset**: what was committed is what is told, by the same broker at least, also after a clean restart; never less,
  never what nobody committed. Where brokers hand on what was committed to them, the end is behind none of it.
* **table**: at the end a topic or group is there if the last word about it was that it was made, and is not if the last
  word was that it was deleted.
* **ack**: what was acknowledged is not given again to whoever asks later; what was given is given to nobody else before
  its time is over.
* **send**: what was acknowledged is there at the end.
* **recall**: what was taken back, before it was due, is given to nobody.

A request without an answer may have been carried out or not, and so may one that was refused: a refusal promises
nothing. (What a refusal must not hide, a second answer shows.)
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import Final

#: Another broker cannot lose the lead, win it and lose it again within this time, s.
TWO_ELECTIONS_S: Final = 0.05
LOCK_S: Final = 60.0


class Kind(Enum):
    """Of a request."""

    LOCK = "lock"
    UNLOCK = "unlock"
    COMMIT = "commit"
    OFFSET = "offset"
    MAKE = "make"
    DELETE = "delete"
    SEND = "send"
    GIVEN = "given"
    ACK = "ack"
    RECALL = "recall"


@dataclass(slots=True, eq=False)
class Told:
    """One request.

    Attributes:
        key: what it is about: a queue, a topic, a group, a message.
        value: an offset; of what was given: for how many ms nobody else is to get it; 0 elsewhere.
        began, ended: when it was sent and answered, s.
        ok: True: it was granted or done. False: refused. None: no answer.
    """

    kind: Kind
    key: str
    client: str
    broker: str
    began: float
    value: int = 0
    ended: float = float("inf")
    ok: bool | None = None

    def __str__(self) -> str:
        what = f"{self.kind.value} {self.key}" + (f" {self.value}" if self.value else "")
        return f"{what} of {self.client} at {self.broker} [{self.began:.3f}, {self.ended:.3f}]"


@dataclass(frozen=True, slots=True)
class Change:
    """Of a broker, at a moment, s.

    Attributes:
        leads: it does from here on, as far as it knows.
        keeps_offsets: it ended or began in order: locks are gone, what was committed is not.
    """

    when: float
    leads: bool = False
    keeps_offsets: bool = False


@dataclass(slots=True)
class History:
    """Everything that was asked.

    Args:
        now: seconds of the clock of all.
        knows_roles: every change of a role is told (`changed`).
        has_one_master: one broker alone changes topics and groups, whichever broker is active meanwhile.

    Attributes:
        on_granted: called with each request that was granted or done, when its answer is heard.
    """

    now: Callable[[], float]
    knows_roles: bool = False
    has_one_master: bool = False
    told: list[Told] = field(default_factory=list)
    changes: dict[str, list["Change"]] = field(default_factory=dict)  # by broker, in the order of time
    on_granted: Callable[[Told], object] = field(default=lambda one: None)

    def ask(self, kind: Kind, key: str, client: str, broker: str, value: int = 0) -> Told:
        """A request is sent."""
        one = Told(kind, key, client, broker, self.now(), value)
        self.told.append(one)
        return one

    def answered(self, one: Told, ok: bool, value: int | None = None) -> None:
        """It was answered; `value` is what the answer says."""
        one.ended, one.ok = self.now(), ok
        if value is not None:
            one.value = value
        if ok:
            self.on_granted(one)

    def changed(self, broker: str, *, leads: bool = False, keeps_offsets: bool = False) -> None:
        """This broker was killed, ended or started, or its role changed: what it had in memory alone may be gone."""
        self.changes.setdefault(broker, []).append(Change(self.now(), leads, keeps_offsets))

    def _changes(self, broker: str, since: float, until: float) -> list[Change]:
        return [change for change in self.changes.get(broker, ()) if since <= change.when <= until]

    def _is_steady(self, broker: str, since: float, until: float) -> bool:
        return not self._changes(broker, since, until)

    def _leads_at(self, broker: str, when: float) -> bool:
        """Did it take itself for the leader then? Only where roles are known."""
        before = [change.leads for change in self.changes.get(broker, ()) if change.when < when]
        return self.knows_roles and bool(before) and before[-1]

    def _led(self, broker: str, since: float, until: float) -> bool:
        """Did it take itself for the leader all the time?"""
        return self._leads_at(broker, since) and self._is_steady(broker, since, until)

    def _has_kept_offsets(self, broker: str, since: float, until: float) -> bool:
        """Did it lead at both ends of this time, and was in between at most ended and started in order?"""
        kept = all(change.keeps_offsets for change in self._changes(broker, since, until))
        return kept and self._leads_at(broker, since) and self._leads_at(broker, until)

    def _is_of_a_reign(self, one: Told) -> bool:
        """Is this an answer that only the group's active broker gives? A slave tells of offsets what its copy says."""
        if one.kind in _TABLES:
            return not self.has_one_master
        if one.kind is Kind.LOCK:
            return True
        return one.kind in (Kind.OFFSET, Kind.COMMIT) and self._led(one.broker, one.began, one.ended)

    def count(self) -> dict[str, int]:
        """Answers that promise something, by kind."""
        counts: dict[str, int] = {}
        for one in self.told:
            if one.ok:
                counts[one.kind.value] = counts.get(one.kind.value, 0) + 1
        return counts

    def broken(
        self,
        *,
        tables: Iterable[str] | None = None,
        messages: Iterable[str] | None = None,
        offset: int | None = None,
    ) -> list[str]:
        """Every promise that was not kept, in words.

        Args:
            tables: topics and groups that are there at the end; None: nobody looked.
            messages: keys of the messages that are there at the end; None: nobody looked.
            offset: what is committed at the end; None: nobody looked, or brokers that live keep to themselves what was
                committed to them.
        """
        granted = [one for one in self.told if one.ok]
        found = self._out_of_turn([one for one in granted if self._is_of_a_reign(one)])
        found += self._locked_twice(granted)
        found += self._offsets_lost(granted)
        found += _acks_forgotten(granted, self.told)
        found += _given_twice(granted)
        found += _recalled_and_given(granted)
        if offset is not None:
            found += [
                f"{one} was acknowledged, and {offset} is committed at the end" for one in self.commits_beyond(offset)
            ]
        if tables is not None:
            found += self._tables_wrong(set(tables))
        if messages is not None:
            there = set(messages)
            found += [f"{one} was acknowledged and is gone" for one in granted
                      if one.kind is Kind.SEND and one.key not in there]  # fmt: skip
        return found

    def _is_same_reign(self, broker: str, granted: list[Told], since: float, until: float) -> bool:
        """Was this broker's memory its group's all the time, as far as anybody could see?"""
        return self._is_steady(broker, since, until) and self._nobody_else_spoke(broker, granted, since, until)

    def _nobody_else_spoke(self, broker: str, granted: list[Told], since: float, until: float) -> bool:
        return not any(
            one.broker != broker and one.ended >= since and one.began <= until
            for one in granted
            if self._is_of_a_reign(one)
        )

    def _locked_twice(self, granted: list[Told]) -> list[str]:
        found = []
        by_queue: dict[str, list[Told]] = {}
        for one in granted:
            if one.kind is Kind.LOCK:
                by_queue.setdefault(one.key, []).append(one)
        unlocks = [one for one in self.told if one.kind is Kind.UNLOCK]
        for locks in by_queue.values():
            locks.sort(key=lambda one: one.ended)
            for first, second in pairwise(locks):
                if first.client == second.client or first.ended > second.began:
                    continue
                if second.ended - first.began > LOCK_S or first.broker != second.broker:
                    continue
                is_given_back = any(
                    one.key == first.key and one.client == first.client
                    and one.began <= second.ended and one.ended >= first.began
                    for one in unlocks
                )  # fmt: skip
                if not is_given_back and self._is_same_reign(first.broker, granted, first.began, second.ended):
                    found.append(f"{second}, and it is locked: {first}")
        return found

    def _offsets_lost(self, granted: list[Told]) -> list[str]:
        found = []
        commits = [one for one in self.told if one.kind is Kind.COMMIT]
        for one in granted:
            if one.kind is not Kind.OFFSET:
                continue
            of_key = [commit for commit in commits if commit.key == one.key]
            if one.value > 0 and not any(commit.value == one.value and commit.began < one.ended for commit in of_key):
                found.append(f"{one}: nobody had committed that")
            before = [commit for commit in of_key if commit.ok and commit.ended < one.began]
            if before:
                last = max(before, key=lambda commit: commit.value)
                if (
                    one.value < last.value
                    and last.broker == one.broker
                    and self._has_kept_offsets(one.broker, last.began, one.ended)
                    and self._nobody_else_spoke(one.broker, granted, last.began, one.ended)
                ):
                    found.append(f"{one}, after {last}")
        return found

    def commits_beyond(self, offset: int) -> list[Told]:
        """Acknowledged commits of more, by brokers that were at most ended and started in order since."""
        return [one for one in self.told
                if one.kind is Kind.COMMIT and one.ok and one.value > offset and self._outlived(one)]  # fmt: skip

    def _outlived(self, commit: Told) -> bool:
        return all(change.keeps_offsets for change in self._changes(commit.broker, commit.began, float("inf")))

    def _tables_wrong(self, there: set[str]) -> list[str]:
        """The words about one name are one client's, one after the other."""
        found = []
        last: dict[str, Told] = {}
        for one in self.told:
            if one.kind in (Kind.MAKE, Kind.DELETE):
                last[one.key] = one
        for key, one in last.items():
            if one.ok and (key in there) is not (one.kind is Kind.MAKE):
                found.append(f"{one} was acknowledged, and {key} is {'' if key in there else 'not '}there")
        return found

    def _out_of_turn(self, answers: list[Told]) -> list[str]:
        """Return the answers of a broker that lie between two answers of another one which led all the time."""
        found = []
        by_broker: dict[str, list[Told]] = {}
        for one in answers:
            by_broker.setdefault(one.broker, []).append(one)
        for broker, own in by_broker.items():
            for other, theirs in by_broker.items():
                if other == broker:
                    continue
                theirs.sort(key=lambda one: one.ended)
                at = 0
                for one in sorted(own, key=lambda one: one.began):
                    while at < len(theirs) and theirs[at].ended < one.began:
                        at += 1
                    before = theirs[at - 1] if at else None
                    after = next((two for two in theirs[at:] if two.began > one.ended), None)
                    if before is not None and after is not None and self._led_between(before, one, after):
                        found.append(f"{one} was answered between {before} and {after}")
        return found

    def _led_between(self, before: Told, one: Told, after: Told) -> bool:
        if self.knows_roles:
            return self._is_steady(before.broker, before.began, after.ended)
        return after.ended - before.ended < TWO_ELECTIONS_S + one.ended - one.began


_TABLES: Final = (Kind.MAKE, Kind.DELETE)


def _acks_forgotten(granted: list[Told], told: list[Told]) -> list[str]:
    acked: dict[str, Told] = {}
    for one in granted:
        if one.kind is Kind.ACK:
            first = acked.get(one.key)
            if first is None or one.ended < first.ended:
                acked[one.key] = one
    found = []
    for one in told:
        if one.kind is Kind.GIVEN and one.key in acked and one.began > acked[one.key].ended:
            found.append(f"{one}, and it was acknowledged: {acked[one.key]}")
    return found


def _recalled_and_given(granted: list[Told]) -> list[str]:
    recalled = {one.key: one for one in granted if one.kind is Kind.RECALL}
    return [f"{one}, and it was taken back: {recalled[one.key]}" for one in granted
            if one.kind is Kind.GIVEN and one.key in recalled]  # fmt: skip


def _given_twice(granted: list[Told]) -> list[str]:
    """Also to the same client: it has it."""
    found = []
    last: dict[str, Told] = {}
    for one in sorted((one for one in granted if one.kind is Kind.GIVEN), key=lambda one: one.ended):
        before = last.get(one.key)
        if before is not None and one.ended < before.began + before.value / 1000:
            found.append(f"{one}, and it is another's: {before}")
        last[one.key] = one
    return found
