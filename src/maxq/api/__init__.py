"""The client library with the machine's own clock, disk, chance and address filled in.

    from maxq.api import Message, Producer, PushConsumer

    with Producer("my-producers", "127.0.0.1:9876") as producer:
        producer.send(Message("Topic", b"hello"))

The classes here block; `maxq.aio` has those for asyncio, by the same names. Settings are given by keyword;
`maxq.client.settings` has their types.
"""

import importlib
from typing import TYPE_CHECKING, Any, Unpack

from maxq import aio
from maxq.client import shared_names
from maxq.client.argument_checks import config_of
from maxq.client.blocking import sync
from maxq.client.client_config import ClientConfig, ProducerConfig
from maxq.client.settings import ClientSettings, ProducerSettings
from maxq.client.shared_names import *  # noqa: F403 - its __all__ is the list
from maxq.machine import new_event_loop, system_environment

__all__ = [
    "Admin",
    "LitePullConsumer",
    "Producer",
    "PushConsumer",
    "SimpleConsumer",
    "TransactionProducer",
    "async_admin",
    "async_lite_pull_consumer",
    "async_producer",
    "async_push_consumer",
    "async_simple_consumer",
    "async_transaction_producer",
    "system_environment",
]
__all__ += shared_names.__all__


def __dir__() -> list[str]:
    """Return the public names, without the imports of this module."""
    return sorted(__all__)


class Producer(sync.Producer):
    """Sends messages for one producer group. Start it with `with`, or `start()` and `shutdown()`. Any number of threads
    may send.

    Args:
        producer_group: name of the group.
        namesrv_addr: host:port of name servers, separated by ';'.
        settings: see maxq.client.settings.ProducerSettings.
    """

    def __init__(self, producer_group: str, namesrv_addr: str, **settings: "Unpack[ProducerSettings]") -> None:
        config = config_of(ProducerConfig, {"producer_group": producer_group, "namesrv_addr": namesrv_addr, **settings})
        super().__init__(config, system_environment(namesrv_addr), loop_factory=new_event_loop)


class TransactionProducer(sync.TransactionProducer):
    """Sends messages for one producer group, also in transactions. Local transactions are executed in the thread that
    sends; checks run in a thread of the producer's own.

    Args:
        producer_group: name of the group; brokers ask any of its members how a transaction ended.
        namesrv_addr: host:port of name servers, separated by ';'.
        listener: executes local transactions and knows how they ended; its methods are plain functions.
        settings: see maxq.client.settings.ProducerSettings.
    """

    def __init__(
        self,
        producer_group: str,
        namesrv_addr: str,
        listener: shared_names.TransactionListener,
        **settings: "Unpack[ProducerSettings]",
    ) -> None:
        config = config_of(ProducerConfig, {"producer_group": producer_group, "namesrv_addr": namesrv_addr, **settings})
        super().__init__(config, system_environment(namesrv_addr), listener, loop_factory=new_event_loop)


class Admin(sync.Admin):
    """Looks after topics, groups, brokers and name servers. Use it with `with`; `dir` lists its parts.

    Args:
        namesrv_addr: host:port of name servers, separated by ';'.
        settings: see maxq.client.settings.ClientSettings.
    """

    def __init__(self, namesrv_addr: str, **settings: "Unpack[ClientSettings]") -> None:
        config = config_of(ClientConfig, {"namesrv_addr": namesrv_addr, **settings})
        super().__init__(config, system_environment(namesrv_addr), loop_factory=new_event_loop)


#: The names that the classes of maxq.aio had here at first.
async_admin = aio.Admin
async_producer = aio.Producer
async_transaction_producer = aio.TransactionProducer

if TYPE_CHECKING:
    from maxq.api.consumers import LitePullConsumer, PushConsumer, SimpleConsumer

    async_lite_pull_consumer = aio.LitePullConsumer
    async_push_consumer = aio.PushConsumer
    async_simple_consumer = aio.SimpleConsumer
else:
    _CONSUMERS = {
        "LitePullConsumer": ("maxq.api.consumers", "LitePullConsumer"),
        "PushConsumer": ("maxq.api.consumers", "PushConsumer"),
        "SimpleConsumer": ("maxq.api.consumers", "SimpleConsumer"),
        "async_lite_pull_consumer": ("maxq.aio.consumers", "LitePullConsumer"),
        "async_push_consumer": ("maxq.aio.consumers", "PushConsumer"),
        "async_simple_consumer": ("maxq.aio.consumers", "SimpleConsumer"),
    }

    def __getattr__(name: str) -> Any:
        # On demand: a program that only sends does not load what consumers are made of.
        if name not in _CONSUMERS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, of_module = _CONSUMERS[name]
        found = globals()[name] = getattr(importlib.import_module(module), of_module)
        return found
