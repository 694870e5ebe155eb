"""RouteInfoManager against a naive second implementation, under random histories."""

import sys
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from maxq.namesrv.route_info_manager import RouteInfoManager
from tests.short_form import times
from tests.unit.namesrv.registrations import CLUSTER, addrs, manager, perms, registration, topic

TOPICS = ["T0", "T1", "T2", "T3"]
NAMES = ["a", "b"]
IDS = [0, 1]


@dataclass
class Broker:
    """What one broker said last, and what was done to it since."""

    version: int
    said: dict[str, int] = field(default_factory=dict)  # topic → perm
    shown: dict[str, int] = field(default_factory=dict)


class Model:
    """Masters only; slaves have addresses but no topics."""

    def __init__(self) -> None:
        self.masters: dict[str, Broker] = {}
        self.ids: dict[str, set[int]] = {name: set() for name in NAMES}

    def register(self, name: str, broker_id: int, version: int, topics: dict[str, int]) -> None:
        if broker_id not in self.ids[name]:
            if len(topics) == 1:
                return
            fresh = True
        else:
            fresh = False
        self.ids[name].add(broker_id)
        if broker_id != 0:
            return
        broker = self.masters.setdefault(name, Broker(version))
        for t, perm in topics.items():
            is_wiped = broker.said.get(t) == perm and broker.shown[t] == perm & ~2
            if fresh or broker.said.get(t) != perm or (broker.version != version and not is_wiped):
                broker.said[t] = broker.shown[t] = perm
        broker.version = version

    def unregister(self, name: str, broker_id: int) -> None:
        self.ids[name].discard(broker_id)
        if not self.ids[name]:
            self.masters.pop(name, None)

    def perms(self, t: str) -> dict[str, int]:
        return {name: broker.shown[t] for name, broker in self.masters.items() if t in broker.shown}


names, ids = st.sampled_from(NAMES), st.sampled_from(IDS)
tables = st.dictionaries(st.sampled_from(TOPICS), st.sampled_from([2, 4, 6]), max_size=4)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("register"), names, ids, st.integers(1, 2), tables),
        st.tuples(st.just("again"), names, ids),  # what it registered last
        st.tuples(st.just("unregister"), names, ids),
        st.tuples(st.just("close"), names, ids),
        st.tuples(st.just("wipe"), names),
        st.tuples(st.just("add"), names),
        st.tuples(st.just("delete"), st.sampled_from(TOPICS)),
    ),
    max_size=30,
)


@settings(max_examples=times(300), deadline=None)
@given(steps)
def test_routes_are_those_of_the_naive_tables_after_any_history(history: list[tuple[object, ...]]) -> None:
    routes, model = manager(), Model()
    last: dict[tuple[object, ...], tuple[object, ...]] = {}
    for step in history:
        if step[0] == "register":
            last[step[1:3]] = step
        apply(routes, model, last.get(step[1:], step) if step[0] == "again" else step)
        for t in TOPICS:
            assert perms(routes, t) == model.perms(t)
            expected = {name: {i: f"{name}:{i}" for i in model.ids[name]} for name in model.perms(t)}
            assert addrs(routes, t) == expected
        assert set(routes.all_topics().topic_list) == {t for t in TOPICS if model.perms(t)}


def apply(routes: RouteInfoManager, model: Model, step: tuple[object, ...]) -> None:
    match step:
        case ("register", str(name), int(broker_id), int(version), dict(table)):
            configs = [topic(t, perm=perm) for t, perm in table.items()]
            addr = sys.intern(f"{name}:{broker_id}")
            digest = repr((version, table)).encode()
            if routes.register_again(CLUSTER, addr, addr, digest, now_ms=0) is None:
                routes.register_broker(
                    registration(configs, name=name, broker_id=broker_id, addr=addr, version=version, connection=addr,
                                 acting=None, digest=digest),
                    now_ms=0,
                )  # fmt: skip
            model.register(name, broker_id, version, table)
        case ("unregister", str(name), int(broker_id)):
            routes.unregister_broker(CLUSTER, f"{name}:{broker_id}", name)
            model.unregister(name, broker_id)
        case ("close", str(name), int(broker_id)):
            for live in list(routes.expired(10**9)):
                if live[0].broker_addr == f"{name}:{broker_id}":
                    routes.on_connection_closed(live[1])
            model.unregister(name, broker_id)
        case ("wipe", str(name)):
            if name in model.masters:
                shown = model.masters[name].shown
                assert routes.wipe_write_perm_of_broker(name) == len(shown)
                shown.update({t: perm & ~2 for t, perm in shown.items()})
        case ("add", str(name)):
            if name in model.masters:
                shown = model.masters[name].shown
                assert routes.add_write_perm_of_broker(name) == len(shown)
                shown.update(dict.fromkeys(shown, 6))
        case ("delete", str(t)):
            routes.delete_topic(t)
            for broker in model.masters.values():
                broker.said.pop(t, None)
                broker.shown.pop(t, None)
