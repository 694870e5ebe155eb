"""Which broker decides for an application, as several runs with different views of the cluster find it."""

import json
from typing import Any, cast

import pytest

from maxq.codes import RequestCode, ResponseCode
from maxq.errors import PipelineError
from maxq.pipeline.options.write_options import WriteOptions
from maxq.pipeline.sink.sink_commit import BatchName, Brokers, Coordinator, _deliver_all, find_coordinator
from maxq.protocol.frame.remoting_command import RemotingCommand

NAME = BatchName("app", 0)


class Cluster:
    """Brokers of which the name server knows some; each remembers `batch` and `coordinator`."""

    def __init__(self, *names: str) -> None:
        self.registered = list(names)
        self.ledgers: dict[str, dict[str, str]] = {name: {} for name in names}
        self.waited: list[set[str]] = []
        self.comes_back = True

    def names(self, wanted: frozenset[str] = frozenset(), remedy: str = "") -> list[str]:
        if missing := set(wanted) - {*self.registered}:
            self.waited.append(missing)
            if not self.comes_back:
                raise PipelineError(f"the name server does not know {min(missing)} ({remedy})")
            self.registered = sorted({*self.registered, *missing})
        return self.registered

    def ask(self, broker: str, code: int, ext: dict[str, str], body: bytes | None = None) -> RemotingCommand:
        if broker == "java":
            return RemotingCommand(ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        ledger = self.ledgers[broker]
        if code == RequestCode.MAXQ_CLAIM_STAGED:
            return RemotingCommand(0, {"coordinator": ledger.setdefault("coordinator", ext["coordinator"])})
        assert code == RequestCode.MAXQ_STAGED_DECISION
        return RemotingCommand(0, dict(ledger))

    def find(self, name: BatchName = NAME, **options: str) -> Coordinator:
        given = {"rocketmq.namesrv": "127.0.0.1:1", "delivery": "exactly-once", **options}
        return find_coordinator(cast(Brokers, cast(Any, self)), WriteOptions.parse(given), name)


def test_all_brokers_note_the_coordinator_of_a_new_application() -> None:
    cluster = Cluster("a", "b", "java")
    assert cluster.find() == Coordinator("a", None)
    assert [cluster.ledgers[name].get("coordinator") for name in ("a", "b")] == ["a", "a"]


def test_a_coordinator_that_is_away_is_waited_for_by_who_runs_the_first_batch_again() -> None:
    cluster = Cluster("a", "b")
    cluster.find()
    cluster.ledgers["a"]["batch"] = "0"
    cluster.registered = ["b"]
    assert cluster.find() == Coordinator("a", 0)
    assert cluster.waited == [{"a"}]


def test_one_that_does_not_come_back_is_named_with_a_remedy() -> None:
    cluster = Cluster("a", "b")
    cluster.find()
    cluster.registered, cluster.comes_back = ["b"], False
    with pytest.raises(PipelineError, match=r"does not know a .*option coordinator"):
        cluster.find()
    assert cluster.find(coordinator="b") == Coordinator("b", None)


def test_a_broker_that_came_first_by_name_since_does_not_take_over() -> None:
    cluster = Cluster("b")
    cluster.find()
    cluster.registered, cluster.ledgers["a"] = ["a", "b"], {}
    assert cluster.find() == Coordinator("b", None)
    assert cluster.ledgers["a"] == {"coordinator": "b"}


def test_brokers_that_came_since_the_first_run_learn_of_it_from_the_second() -> None:
    cluster = Cluster("a")
    cluster.find()
    cluster.ledgers["a"]["batch"] = "0"
    cluster.registered, cluster.ledgers["b"] = ["a", "b", "java"], {}
    assert cluster.find() == Coordinator("a", 0)
    assert cluster.ledgers["b"] == {"coordinator": "a"}
    cluster.registered, cluster.comes_back = ["b"], False  # the one that saw the first run is away
    with pytest.raises(PipelineError, match=r"does not know a .*option coordinator"):
        cluster.find()


def test_a_later_batch_leaves_brokers_that_came_since_as_they_are() -> None:
    cluster = Cluster("a", "b")
    cluster.ledgers["a"] = {"batch": "3", "coordinator": "a"}
    assert cluster.find(BatchName("app", 4)) == Coordinator("a", 3)
    assert cluster.ledgers["b"] == {}


def test_of_several_that_decided_the_last_counts() -> None:
    cluster = Cluster("a", "b")
    cluster.ledgers = {"a": {"batch": "4", "coordinator": "a"}, "b": {"batch": "9"}}
    assert cluster.find(BatchName("app", 10)) == Coordinator("b", 9)


@pytest.mark.parametrize("decided", [None, "3"])
def test_a_batch_of_which_a_part_was_delivered_is_not_decided_again_when_its_decision_is_gone(
    decided: str | None,
) -> None:
    cluster = Cluster("a", "b")
    cluster.ledgers = {"a": {"coordinator": "a"}, "b": {"coordinator": "a", "delivered": "4"}}
    if decided is not None:
        cluster.ledgers["a"]["batch"] = decided
        assert cluster.find(BatchName("app", 5)) == Coordinator("a", 3)
    with pytest.raises(PipelineError, match="broker b has delivered a part of batch 4 of application app"):
        cluster.find(BatchName("app", 4))
    cluster.ledgers["a"]["batch"] = "4"
    assert cluster.find(BatchName("app", 4)) == Coordinator("a", 4)


def test_a_decision_that_another_run_makes_between_two_answers_is_not_taken_for_one_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster("a", "b")
    cluster.ledgers = {"a": {"coordinator": "a", "batch": "3"}, "b": {"coordinator": "a"}}
    ask = cluster.ask

    def ask_slowly(broker: str, code: int, ext: dict[str, str], body: bytes | None = None) -> RemotingCommand:
        answer = ask(broker, code, ext, body)
        cluster.ledgers = {"a": {"coordinator": "a", "batch": "4"}, "b": {"coordinator": "a", "delivered": "4"}}
        return answer

    monkeypatch.setattr(cluster, "ask", ask_slowly)
    assert cluster.find(BatchName("app", 4)) == Coordinator("a", 4)


def test_two_runs_that_began_at_once_with_different_coordinators_are_refused() -> None:
    cluster = Cluster("a", "b")
    cluster.ledgers = {"a": {}, "b": {}}
    ask = cluster.ask

    def and_another_run(broker: str, code: int, ext: dict[str, str], body: bytes | None = None) -> RemotingCommand:
        if code == RequestCode.MAXQ_CLAIM_STAGED:
            cluster.ledgers["b"] = {"coordinator": "b"}
        return ask(broker, code, ext, body)

    cluster.ask = and_another_run  # type: ignore[method-assign]
    with pytest.raises(PipelineError, match=r"a and b: .*option coordinator"):
        cluster.find()


def test_nothing_is_noted_for_a_name_that_no_other_run_can_have() -> None:
    cluster = Cluster("a", "b")
    assert cluster.find(BatchName("batch-17", 0, comes_again=False)) == Coordinator("a", None)
    assert cluster.ledgers == {"a": {}, "b": {}}


class Deliveries:
    """Brokers that answer each decision with `decided` and each delivery with the next of `answers`."""

    def __init__(self, decided: dict[str, Any], *answers: dict[str, str]) -> None:
        self._decided = decided
        self._answers = list(answers)

    def ask(self, broker: str, code: int, ext: dict[str, str], body: bytes | None = None) -> RemotingCommand:
        if code == RequestCode.MAXQ_DELIVER_STAGED:
            return RemotingCommand(0, self._answers.pop(0))
        return RemotingCommand(0, body=json.dumps(self._decided).encode())

    def deliver(self, *, tells_again: bool) -> None:
        _deliver_all(cast(Brokers, cast(Any, self)), NAME, self._decided, tells_again=tells_again)


LOST_BEFORE = {"done": "true", "lost": "8", "before": "true"}


def test_a_loss_is_told_to_the_run_that_wrote_the_batch_though_the_first_answer_was_lost() -> None:
    """The broker delivers, its answer does not arrive, and what is asked again was done before."""
    deliveries = Deliveries({"brokers": {"a": {"runs": []}}}, LOST_BEFORE)
    with pytest.raises(PipelineError, match="8 messages of batch 0 of app are lost"):
        deliveries.deliver(tells_again=True)


def test_a_loss_that_an_earlier_run_was_told_does_not_end_the_next_one(caplog: pytest.LogCaptureFixture) -> None:
    Deliveries({"brokers": {"a": {"runs": []}}}, LOST_BEFORE).deliver(tells_again=False)
    assert "8 messages of batch 0 of app are lost" in caplog.text
    with pytest.raises(PipelineError, match="8 messages"):
        Deliveries({"brokers": {"a": {"runs": []}}}, LOST_BEFORE | {"before": "false"}).deliver(tells_again=False)
