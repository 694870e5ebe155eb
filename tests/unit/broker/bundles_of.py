"""The bundles that parts of a broker take, with what a test has. What it has not is None."""

from typing import Any, TypeVar

from maxq.broker.bundles import Clients, Environment, Limits, Messages, Tables
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.processors.send.put_hooks import PutHooks
from maxq.broker.stats.broker_stats_manager import BrokerStatsManager
from maxq.config.settings import BrokerSettings
from maxq.testing.sim_clock import SimClock

Bundle = TypeVar("Bundle", Tables, Clients, Messages, Limits)


def fail(service: str, error: BaseException) -> None:
    """A service that ends by an error fails its test."""
    raise error


def environment(settings: BrokerSettings | None = None, **given: Any) -> Environment:
    """The environment of a broker "broker-a" without access control."""
    clock = given.get("clock") or SimClock()
    parts: dict[str, Any] = {
        "settings": settings or BrokerSettings(),
        "disk": None,
        "clock": clock,
        "rng": None,
        "own": BrokerAddress("C", "broker-a", 0, "10.0.0.1", 10911),
        "stats": BrokerStatsManager("C", clock=clock, is_system_topic=lambda topic: False, detail=lambda: False),
        "rpc_latency": None,
        "guard": None,
        "on_failure": fail,
    }
    return Environment(**{**parts, **given})


def tables(**given: Any) -> Tables:
    """These tables."""
    return _bundle(Tables, given)


def clients(**given: Any) -> Clients:
    """These tables of clients."""
    return _bundle(Clients, given)


def messages(**given: Any) -> Messages:
    """This store; no put hooks unless they are given."""
    return _bundle(Messages, {"hooks": PutHooks(), **given})


def limits(**given: Any) -> Limits:
    """These limits."""
    return _bundle(Limits, given)


def _bundle(kind: type[Bundle], given: dict[str, Any]) -> Bundle:
    return kind(**{**dict.fromkeys(kind.__annotations__), **given})
