"""The client library for asyncio, with the machine's own clock, disk, chance and address filled in.

    from maxq.aio import Message, Producer

    async with Producer("my-producers", "127.0.0.1:9876") as producer:
        await producer.send(Message("Topic", b"hello"))

`maxq.api` has blocking clients of the same names. Settings are given by keyword; `maxq.client.settings` has their
types.
"""

import importlib
from typing import TYPE_CHECKING, Any, Unpack

from maxq.client import shared_names
from maxq.client.admin import admin
from maxq.client.argument_checks import config_of
from maxq.client.client_config import ClientConfig, ProducerConfig
from maxq.client.producer import producer, transaction_producer
from maxq.client.settings import ClientSettings, ProducerSettings
from maxq.client.shared_names import *  # noqa: F403 - its __all__ is the list
from maxq.machine import system_environment

__all__ = [
    "Admin",
    "LitePullConsumer",
    "Producer",
    "PushConsumer",
    "SimpleConsumer",
    "TransactionProducer",
    "system_environment",
]
__all__ += shared_names.__all__

if TYPE_CHECKING:
    from maxq.aio.consumers import LitePullConsumer, PushConsumer, SimpleConsumer
else:

    def __getattr__(name: str) -> Any:
        # On demand: a program that only sends does not load what consumers are made of.
        if name not in ("LitePullConsumer", "PushConsumer", "SimpleConsumer"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module("maxq.aio.consumers"), name)
        return found


def __dir__() -> list[str]:
    """Return the public names, without the imports of this module."""
    return sorted(__all__)


class Producer(producer.Producer):
    """Sends messages for one producer group. Start it with `async with`, or `await producer.start()` and
    `await producer.shutdown()`. Any number of tasks of its event loop may send.

    Args:
        producer_group: name of the group.
        namesrv_addr: host:port of name servers, separated by ';'.
        settings: see maxq.client.settings.ProducerSettings.
    """

    def __init__(self, producer_group: str, namesrv_addr: str, **settings: "Unpack[ProducerSettings]") -> None:
        config = config_of(ProducerConfig, {"producer_group": producer_group, "namesrv_addr": namesrv_addr, **settings})
        super().__init__(config, system_environment(namesrv_addr))


class TransactionProducer(transaction_producer.TransactionProducer):
    """Sends messages for one producer group, also in transactions.

    Args:
        producer_group: name of the group; brokers ask any of its members how a transaction ended.
        namesrv_addr: host:port of name servers, separated by ';'.
        listener: executes local transactions and knows how they ended. Its methods may be coroutine functions; plain
            ones run on the event loop and must not block.
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
        super().__init__(config, system_environment(namesrv_addr), listener)


class Admin(admin.Admin):
    """Looks after topics, groups, brokers and name servers. Use it with `async with`, on a running loop; `dir` lists
    its parts.

    Args:
        namesrv_addr: host:port of name servers, separated by ';'.
        settings: see maxq.client.settings.ClientSettings.
    """

    def __init__(self, namesrv_addr: str, **settings: "Unpack[ClientSettings]") -> None:
        config = config_of(ClientConfig, {"namesrv_addr": namesrv_addr, **settings})
        super().__init__(config, system_environment(namesrv_addr))
