"""The driver's part of exactly once: one decision, then delivery of the staged messages
(docs/explanation/exactly-once.md).

    1. The coordinator of the application is found: the broker that keeps its decisions. For a new application one is
       chosen, and all brokers note which one it is.
    2. Its last decision, of an earlier batch, is delivered, if the run that decided it has not done so.
    3. It is told which attempts make up this batch. It answers with the decision that holds: this one, or an earlier
       one of the same batch, whose rows then count instead of this run's.
    4. Every broker of the decision delivers its staged messages.
    5. If the decision came from another run, and is not the first one of this batch, an error is raised.

Each step may be repeated any number of times, by anybody who knows the name of the batch.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime
from time import sleep
from typing import Any, Final, NamedTuple, TypeVar

from maxq.codes import RequestCode, ResponseCode
from maxq.errors import PipelineError, RemoteProtocolError, RemotingError
from maxq.pipeline.options.write_options import WriteOptions
from maxq.pipeline.sink.sender import RETRIABLE_CODES
from maxq.pipeline.sink.sink_task import TaskResult
from maxq.pipeline.wire.wire_client import WireClient
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.frame.remoting_command import RemotingCommand

log: Final = logging.getLogger(__name__)

T = TypeVar("T")

_PAUSE_S: Final = 0.2


class BatchName(NamedTuple):
    """The name under which a batch is committed once.

    Attributes:
        comes_again: it may be run again under this name.
    """

    application: str
    batch_id: int
    comes_again: bool = True

    def fields(self) -> dict[str, str]:
        return {"application": self.application, "batch": str(self.batch_id)}


@dataclass(frozen=True)
class WriteRun:
    """One execution of a write, as its decision describes it to later runs.

    Attributes:
        began_ms: wall time on the driver.
        query, query_run: ids of the streaming query that it belongs to, and of that query's start; empty: of none.
        topic: where rows without a topic of their own go; empty: all rows have one.
    """

    began_ms: int
    query: str = ""
    query_run: str = ""
    topic: str = ""


@dataclass(frozen=True)
class Coordinator:
    """The broker that decides for an application, and the last batch that it decided; None: there is none."""

    broker: str
    last_batch: int | None


class Delivery(NamedTuple):
    """A broker's answer about the delivery of its part of a batch.

    Attributes:
        lost: how many messages are not delivered and never will be.
        before: the part had been delivered when it was asked for.
    """

    lost: int
    before: bool


def commit(options: WriteOptions, name: BatchName, results: Sequence[TaskResult], run: WriteRun) -> None:
    """Make the batch's messages visible, exactly once. Returns when all are visible.

    Raises:
        PipelineError: brokers do not answer in time, are not MaxQ's, or have lost staged messages; or another run has
            committed other rows under this name.
    """
    with WireClient(options.connection) as client:
        brokers = Brokers(client, options)
        staged = {broker for result in results for broker in result.staged}
        coordinator = find_coordinator(brokers, options, name, staged)
        if coordinator.last_batch is not None and coordinator.last_batch < name.batch_id:
            _deliver_last(brokers, coordinator, name.application, tells_again=False)
        ours = decision_of(results, run)
        decision = decide(brokers, coordinator, name, ours)
        _deliver_all(brokers, name, decision, tells_again=decision["brokers"] == ours["brokers"])
    if not is_repetition(decision, ours):
        raise _written_once(name, decision, ours)
    other = decision.get("run", ours["run"])
    if ours["run"]["rows"] and any(ours["run"][name] != other[name] for name in ("rows", "digest")):
        log.warning(
            "batch %d of application %s was committed by an earlier start of its query, %s; this run, %s, counts as "
            "its repetition, and its rows are not written. If the checkpoint is a copy or an older one, or changed, so "
            "that this batch reads more than it did, these rows are lost",
            name.batch_id, name.application, _run_text(decision), _run_text(ours),
        )  # fmt: skip


def deliver_last(options: WriteOptions, application: str) -> dict[str, Any]:
    """Make the messages of an application's last decided batch visible, if they are not: its driver died before that,
    and will not run again. Changes nothing if they are visible.

    Returns:
        As JSON: application, batch, coordinator, and of the run that was decided rows, beganMs, query and queryRun.

    Raises:
        PipelineError: no broker knows of a batch; brokers do not answer in time, are not MaxQ's, or have lost staged
            messages.
    """
    found = _find_and_deliver_last(options, application, tells_again=True)
    if found is None:
        raise PipelineError(
            f"no broker has decided a batch of application {application}: nothing of it is to be delivered. A stream "
            "without the option applicationId is known by the id of its query, which its checkpoint's file metadata has"
        )
    coordinator, decision = found
    told = {name: value for name, value in decision.get("run", {}).items() if name not in ("digest", "topic")}
    return {"application": application, "batch": coordinator.last_batch, "coordinator": coordinator.broker, **told}


def deliver_decided(options: WriteOptions, application: str) -> int | None:
    """Make the messages of an application's last decided batch visible, if they are not, as `deliver_last`.

    Returns:
        How many rows that batch has; None if no broker has decided one.

    Raises:
        PipelineError: as `deliver_last`; but messages that were found lost in an earlier delivery are only logged.
    """
    found = _find_and_deliver_last(options, application, tells_again=False)
    return None if found is None else int(found[1].get("run", {}).get("rows", 0))


def _find_and_deliver_last(
    options: WriteOptions, application: str, *, tells_again: bool
) -> "tuple[Coordinator, dict[str, Any]] | None":
    """Deliver the batch that was decided last, and return who decided it, and the decision; None if there is none."""
    with WireClient(options.connection) as client:
        brokers = Brokers(client, options)
        coordinator = find_coordinator(brokers, options, BatchName(application, 0, comes_again=False))
        if coordinator.last_batch is None:
            return None
        return coordinator, _deliver_last(brokers, coordinator, application, tells_again=tells_again)


def _deliver_last(
    brokers: "Brokers", coordinator: "Coordinator", application: str, *, tells_again: bool
) -> dict[str, Any]:
    """Deliver the batch that was decided last, and return its decision."""
    assert coordinator.last_batch is not None, "asked by the caller"
    name = BatchName(application, coordinator.last_batch)
    decision = decide(brokers, coordinator, name, {"brokers": {}})
    _deliver_all(brokers, name, decision, tells_again=tells_again)
    return decision


def _deliver_all(brokers: "Brokers", name: BatchName, decision: Mapping[str, Any], *, tells_again: bool) -> None:
    """Deliver a decided batch.

    Args:
        tells_again: a loss is an error also if the batch was delivered before. Otherwise it is only logged, because the
            run that wrote the batch was told, or was killed.

    Raises:
        PipelineError: some of its messages are lost.
    """
    found = [deliver(brokers, broker, name, part) for broker, part in sorted(decision["brokers"].items())]
    lost = sum(one.lost for one in found)
    if not lost:
        return
    text = (
        f"{lost} messages of batch {name.batch_id} of {name.application} are lost: brokers had acknowledged them and "
        "lost them before the commit (asynchronous replication or flushing), or cannot store them in their topic; the "
        "log of the broker names them. The others are delivered"
    )
    if tells_again or not all(one.before for one in found if one.lost):
        raise PipelineError(text)
    log.error("%s", text)


class Brokers:
    """Asks masters, by the names of their brokers, and waits for those that cannot be reached."""

    def __init__(self, client: WireClient, options: WriteOptions) -> None:
        self._client = client
        self._limit_ms = options.connection.broker_wait_ms

    def names(self, wanted: AbstractSet[str] = frozenset(), remedy: str = "start it") -> list[str]:
        """Return the names of all brokers that the name server knows. A name server that has just started knows none of
        them, or not all that are wanted, yet: it is asked again.

        Args:
            remedy: what to do about one that stays away.

        Raises:
            PipelineError: that lasts longer than rocketmq.brokerWait.
        """

        def attempt() -> list[str] | str:
            found = sorted(self._client.cluster_info().broker_addr_table)
            missing = sorted(wanted - {*found}) if found else ["any"]
            return f"the name server does not know {missing[0]} ({remedy})" if missing else found

        return self._patiently(attempt, "the coordinator")

    def ask(self, broker: str, code: int, ext: dict[str, str], body: bytes | None = None) -> RemotingCommand:
        """Return an answer: SUCCESS, or a refusal that will not change.

        Raises:
            PipelineError: there is none within rocketmq.brokerWait.
        """
        return self._patiently(lambda: self._once(broker, code, ext, body), f"broker {broker}")

    def _once(self, broker: str, code: int, ext: dict[str, str], body: bytes | None) -> RemotingCommand | str:
        """Return the answer, or the reason why there is none yet."""
        data = self._client.cluster_info().broker_addr_table.get(broker)
        address = None if data is None else data.broker_addrs.get(MASTER_ID)
        if address is None:
            return "it has no master"
        answer = self._client.ask(address, code, ext, body)
        if answer.code in RETRIABLE_CODES:
            return f"<{address}> answered {answer.code}: {answer.remark}"
        return answer

    def _patiently(self, attempt: Callable[[], T | str], what: str) -> T:
        """Call `attempt` until it returns a result instead of the reason why it cannot."""
        end_ms = self._client.clock.monotonic_ms() + self._limit_ms
        while True:
            try:
                found = attempt()
            except (RemotingError, RemoteProtocolError) as error:
                found = str(error)
            if not isinstance(found, str):
                return found
            if self._client.clock.monotonic_ms() >= end_ms:
                raise PipelineError(
                    f"{what} could not commit within {self._limit_ms} ms (rocketmq.brokerWait): {found}; its staged "
                    "messages stay, and the batch can be committed again"
                )
            sleep(_PAUSE_S)


def find_coordinator(
    brokers: Brokers, options: WriteOptions, name: BatchName, staged: AbstractSet[str] = frozenset()
) -> Coordinator:
    """Return the broker that has decided for this application before; for a new application the first by name, which
    all brokers then note.

    All brokers that the name server knows are asked, and all must answer: one that is away might be the one. If any of
    them has noted one that the name server does not know, it is waited for. A batch that is not the first, of an
    application that nobody knows, is refused: its coordinator is missing. A first batch that runs again is noted by
    brokers that came since, so that one of those which saw its last run is enough.

    Args:
        staged: brokers that the name server is known to have known a moment ago.
    """
    if options.coordinator:
        known = _known(brokers, [options.coordinator], name)
        return _decided(known) or Coordinator(options.coordinator, None)
    known = _known(brokers, brokers.names(staged), name)
    noted = {ext["coordinator"] for ext in known.values() if "coordinator" in ext}
    found = _decided(known)
    if found is None and not noted <= known.keys():
        remedy = "the application's coordinator: start it, or name another with the option coordinator if it is gone"
        known = _known(brokers, brokers.names(staged | noted, remedy), name)
        found = _decided(known)
    if _delivered_undecided(known, found, name):  # or another run decided, and delivered, between two of the answers
        known = _known(brokers, list(known), name)
        found = _decided(known)
        _refuse_if_gone(known, found, name)
    if found is not None:
        if name.comes_again and name.batch_id == 0:  # a broker that knows no earlier batch refuses later ones
            for broker in sorted(broker for broker, ext in known.items() if "coordinator" not in ext):
                _note(brokers, broker, name, found.broker)
        return found
    if name.batch_id > 0:
        raise PipelineError(
            f"no broker remembers an earlier batch of application {name.application}, and this is batch "
            f"{name.batch_id}: either its coordinator is away and not registered (start it), or this query begins to "
            f"write exactly-once now: then name its coordinator, such as coordinator={min(known)}, and keep that option"
        )
    chosen = min(noted or known)
    if name.comes_again:
        for broker in sorted(known):
            noted.add(_note(brokers, broker, name, chosen))
    if len(noted) > 1:
        raise PipelineError(
            f"two runs of application {name.application} began at once and chose the coordinators "
            f"{' and '.join(sorted(noted))}: end one, and name one of them with the option coordinator"
        )
    return Coordinator(chosen, None)


def _known(brokers: Brokers, names: Sequence[str], name: BatchName) -> dict[str, dict[str, str]]:
    """Ask each MaxQ broker for its state of the application: `batch`, which it has decided on, `delivered`, of which
    it has delivered a part or begun to, and `coordinator`."""
    known: dict[str, dict[str, str]] = {}
    for broker in names:
        answer = brokers.ask(broker, RequestCode.MAXQ_STAGED_DECISION, {"application": name.application})
        if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            _check(answer, broker)
            known[broker] = answer.ext
    if not known:
        raise PipelineError(f"exactly-once needs MaxQ brokers; none of {', '.join(names) or 'the cluster'} is one")
    return known


def _decided(known: Mapping[str, Mapping[str, str]]) -> Coordinator | None:
    """Return the broker that has decided on the latest batch; None if none has decided on any."""
    batches = {broker: int(ext["batch"]) for broker, ext in known.items() if "batch" in ext}
    last = max(batches, key=lambda broker: batches[broker], default=None)
    return None if last is None else Coordinator(last, batches[last])


def _delivered_undecided(known: Mapping[str, Mapping[str, str]], found: Coordinator | None, name: BatchName) -> str:
    """Return the broker that has delivered a part of a batch whose decision is gone; empty if there is none."""
    last = -1 if found is None or found.last_batch is None else found.last_batch
    delivered = {broker: int(ext["delivered"]) for broker, ext in known.items() if "delivered" in ext}
    broker = max(delivered, key=lambda broker: delivered[broker], default="")
    return broker if broker and delivered[broker] > last and delivered[broker] >= name.batch_id else ""


def _refuse_if_gone(known: Mapping[str, Mapping[str, str]], found: Coordinator | None, name: BatchName) -> None:
    """Refuse a batch of which a part was delivered, and whose decision is gone: with another decision, rows of both
    would be in the topics.

    Raises:
        PipelineError: that is so; names the broker that delivered.
    """
    if broker := _delivered_undecided(known, found, name):
        batch = known[broker]["delivered"]
        raise PipelineError(
            f"broker {broker} has delivered a part of batch {batch} of application {name.application}, "
            "and no broker has the decision about that batch: its coordinator has lost it, as it may with asynchronous "
            "replication, or is another one than before. Nothing of this run was written. Look for the batch's rows in "
            "the topic, and go on with another applicationId"
        )


def _note(brokers: Brokers, broker: str, name: BatchName, coordinator: str) -> str:
    """Make a broker note which broker decides, and return the one that it has noted."""
    ext = {"application": name.application, "coordinator": coordinator}
    answer = brokers.ask(broker, RequestCode.MAXQ_CLAIM_STAGED, ext)
    _check(answer, broker)
    return answer.ext["coordinator"]


def decide(brokers: Brokers, coordinator: Coordinator, name: BatchName, ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return the decision in force (see `decision_of`): this run's, unless there was one of this batch before.

    Raises:
        PipelineError: the same start of this query has asked for the batch with other rows: it writes twice under one
            name. Of a query that was started again the first of these writes counts as the repetition.
    """
    body = json.dumps(ours).encode()
    answer = brokers.ask(coordinator.broker, RequestCode.MAXQ_DECIDE_STAGED, name.fields(), body)
    _check(answer, coordinator.broker)
    found: dict[str, Any] = json.loads(answer.body_bytes)
    if "earlierWrite" in answer.ext:
        raise _written_once(name, {"run": json.loads(answer.ext["earlierWrite"])}, ours)
    return found


def _written_once(name: BatchName, other: Mapping[str, Any], ours: Mapping[str, Any]) -> PipelineError:
    return PipelineError(
        f"batch {name.batch_id} of application {name.application} was committed by another run, "
        f"{_run_text(other)}; this one, {_run_text(ours)}, has other rows and has written none of them: a batch "
        "is written once. Give each batch its number in the option batchId (in foreachBatch the batch id), or this "
        "job another applicationId"
    )


def is_repetition(found: Mapping[str, Any], ours: Mapping[str, Any]) -> bool:
    """Return whether the decision in force covers everything that this run was to write.

    It does if it is this run's, or of a run with the same rows, in whichever order and division, or if a streaming
    query was started again and repeats its last batch, which may have other rows then. A batch for another topic is not
    a repetition: otherwise a query that writes to two topics under one name would lose the second.
    """
    mine, other = ours["run"], found.get("run")
    if found["brokers"] == ours["brokers"] or not mine["rows"]:
        return True
    if other is None:  # an earlier version did not record the run
        return bool(mine["query"])
    is_started_again = mine["query"] == other["query"] and mine["queryRun"] != other["queryRun"]
    if mine["query"] and is_started_again and mine["topic"] == other.get("topic", mine["topic"]):
        return True
    return bool(mine["digest"]) and (mine["digest"], mine["rows"]) == (other["digest"], other["rows"])


def _run_text(decision: Mapping[str, Any]) -> str:
    run = decision.get("run")
    if run is None:
        return "of an earlier version of MaxQ"
    began = datetime.fromtimestamp(run["beganMs"] / 1000, UTC).isoformat(timespec="milliseconds")
    query = f" of the streaming query {run['query']}" if run["query"] else ""
    topic = f" to the topic {run['topic']}" if run.get("topic") else ""
    return f"with {run['rows']} rows{topic}, begun at {began}{query}"


def decision_of(results: Sequence[TaskResult], run: WriteRun) -> dict[str, Any]:
    """Return the decision for a coordinator, in the form of JSON.

    brokers   name → {"runs": [[attempt, sequence, queue offset, count], …]}: attempts in the order of their tasks,
              requests of an attempt in the order of its rows, neighbours joined
    run       rows, digest ("": not counted), beganMs, query, queryRun, topic: who wrote what
    """
    brokers: dict[str, dict[str, Any]] = {}
    for result in results:
        for broker, places in result.staged.items():
            runs = brokers.setdefault(broker, {"runs": []})["runs"]
            for sequence, offset in sorted(places):
                last = runs[-1] if runs else None
                if last and last[0] == result.attempt and (last[1] + last[3], last[2] + last[3]) == (sequence, offset):
                    last[3] += 1
                else:
                    runs.append([result.attempt, sequence, offset, 1])
    digest = sum(result.digest for result in results) % (1 << 64)
    told = {
        "rows": sum(result.rows for result in results), "digest": f"{digest:016x}" if digest else "",
        "beganMs": run.began_ms, "query": run.query, "queryRun": run.query_run, "topic": run.topic,
    }  # fmt: skip
    return {"brokers": brokers, "run": told}


def deliver(brokers: Brokers, broker: str, name: BatchName, part: dict[str, Any]) -> Delivery:
    """Ask one broker until it has delivered its part."""
    body = json.dumps(part).encode()
    while True:
        answer = brokers.ask(broker, RequestCode.MAXQ_DELIVER_STAGED, name.fields(), body)
        _check(answer, broker)
        if answer.ext["done"] == "true":
            return Delivery(int(answer.ext["lost"]), answer.ext["before"] == "true")


def _check(answer: RemotingCommand, broker: str) -> None:
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise PipelineError(f"broker {broker} is no MaxQ broker: it takes messages with delivery=at-least-once only")
    if answer.code != ResponseCode.SUCCESS:
        raise PipelineError(f"broker {broker} refuses: {answer.remark}")
