"""The client library with the machine's own clock, disk, chance and address filled in.

    from maxq.api import Message, Producer, PushConsumer

    with Producer("my-producers", "127.0.0.1:9876") as producer:
        producer.send(Message("Topic", b"hello"))

The classes here block. `async_producer`, `async_transaction_producer`, `async_push_consumer`,
`async_lite_pull_consumer`, `async_simple_consumer` and `async_admin` make the asynchronous clients underneath, for
programs with an event loop. Settings are those of `maxq.client.client_config`, by keyword.
"""

from typing import Any

from maxq.client.admin import admin
from maxq.client.argument_checks import config_of
from maxq.client.blocking import sync
from maxq.client.client_config import (
    ClientConfig,
    LitePullConsumerConfig,
    ProducerConfig,
    PushConsumerConfig,
    SimpleConsumerConfig,
)
from maxq.client.consumer import lite_pull_consumer, push_consumer, simple_consumer
from maxq.client.instance.request_reply import create_reply_message
from maxq.client.message_selector import MessageSelector
from maxq.client.producer import producer, transaction_producer
from maxq.client.producer.transaction_producer import LocalTransactionState, TransactionListener, TransactionSendResult
from maxq.client.results.consume_result import ConsumeContext, ConsumeResult, MessageListener
from maxq.client.results.send_result import SendResult, SendStatus
from maxq.machine import new_event_loop, system_environment
from maxq.protocol.enums import ConsumeFromWhere, MessageModel
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.message.message_queue import MessageQueue

__all__ = [
    "Admin",
    "ConsumeContext",
    "ConsumeFromWhere",
    "ConsumeResult",
    "LitePullConsumer",
    "LocalTransactionState",
    "Message",
    "MessageExt",
    "MessageModel",
    "MessageQueue",
    "MessageSelector",
    "Producer",
    "PushConsumer",
    "SendResult",
    "SendStatus",
    "SimpleConsumer",
    "TransactionListener",
    "TransactionProducer",
    "TransactionSendResult",
    "async_admin",
    "async_lite_pull_consumer",
    "async_producer",
    "async_push_consumer",
    "async_simple_consumer",
    "async_transaction_producer",
    "create_reply_message",
    "system_environment",
]


def __dir__() -> list[str]:
    """Return the public names, without the imports of this module."""
    return sorted(__all__)


class Producer(sync.Producer):
    """Blocking producer.

    Args:
        producer_group: name of the group.
        namesrv_addr: host:port of name servers, separated by ';'.
        settings: see ProducerConfig.
    """

    def __init__(self, producer_group: str, namesrv_addr: str, **settings: Any) -> None:
        config = config_of(ProducerConfig, {"producer_group": producer_group, "namesrv_addr": namesrv_addr, **settings})
        super().__init__(config, system_environment(namesrv_addr), loop_factory=new_event_loop)


class TransactionProducer(sync.TransactionProducer):
    """Blocking producer of messages in transactions.

    Args:
        producer_group: name of the group; brokers ask any of its members how a transaction ended.
        namesrv_addr: host:port of name servers, separated by ';'.
        listener: executes local transactions and knows how they ended.
        settings: see ProducerConfig.
    """

    def __init__(self, producer_group: str, namesrv_addr: str, listener: TransactionListener, **settings: Any) -> None:
        config = config_of(ProducerConfig, {"producer_group": producer_group, "namesrv_addr": namesrv_addr, **settings})
        super().__init__(config, system_environment(namesrv_addr), listener, loop_factory=new_event_loop)


class PushConsumer(sync.PushConsumer):
    """Blocking push consumer: plain listeners run in threads.

    Args:
        consumer_group: name of the group.
        namesrv_addr: host:port of name servers, separated by ';'.
        listener: called as `listener(messages, context)`.
        orderly: one call at a time per queue, in order.
        settings: see PushConsumerConfig.
    """

    def __init__(
        self,
        consumer_group: str,
        namesrv_addr: str,
        listener: MessageListener,
        *,
        orderly: bool = False,
        **settings: Any,
    ) -> None:
        config = config_of(
            PushConsumerConfig, {"consumer_group": consumer_group, "namesrv_addr": namesrv_addr, **settings}
        )
        super().__init__(
            config, system_environment(namesrv_addr), listener, orderly=orderly, loop_factory=new_event_loop
        )


class LitePullConsumer(sync.LitePullConsumer):
    """Blocking lite pull consumer; arguments as PushConsumer's, settings of LitePullConsumerConfig."""

    def __init__(self, consumer_group: str, namesrv_addr: str, **settings: Any) -> None:
        config = config_of(
            LitePullConsumerConfig, {"consumer_group": consumer_group, "namesrv_addr": namesrv_addr, **settings}
        )
        super().__init__(config, system_environment(namesrv_addr), loop_factory=new_event_loop)


class SimpleConsumer(sync.SimpleConsumer):
    """Blocking simple consumer; arguments as PushConsumer's, settings of SimpleConsumerConfig."""

    def __init__(self, consumer_group: str, namesrv_addr: str, **settings: Any) -> None:
        config = config_of(
            SimpleConsumerConfig, {"consumer_group": consumer_group, "namesrv_addr": namesrv_addr, **settings}
        )
        super().__init__(config, system_environment(namesrv_addr), loop_factory=new_event_loop)


class Admin(sync.Admin):
    """Blocking admin; settings of ClientConfig."""

    def __init__(self, namesrv_addr: str, **settings: Any) -> None:
        config = config_of(ClientConfig, {"namesrv_addr": namesrv_addr, **settings})
        super().__init__(config, system_environment(namesrv_addr), loop_factory=new_event_loop)


def async_producer(producer_group: str, namesrv_addr: str, **settings: Any) -> producer.Producer:
    """Make an asynchronous producer; `await .start()` or `async with` it."""
    config = config_of(ProducerConfig, {"producer_group": producer_group, "namesrv_addr": namesrv_addr, **settings})
    return producer.Producer(config, system_environment(namesrv_addr))


def async_transaction_producer(
    producer_group: str, namesrv_addr: str, listener: TransactionListener, **settings: Any
) -> transaction_producer.TransactionProducer:
    """Make an asynchronous producer of messages in transactions. Methods of `listener` that are plain functions run on
    the event loop and must not block."""
    config = config_of(ProducerConfig, {"producer_group": producer_group, "namesrv_addr": namesrv_addr, **settings})
    return transaction_producer.TransactionProducer(config, system_environment(namesrv_addr), listener)


def async_push_consumer(
    consumer_group: str, namesrv_addr: str, listener: MessageListener, *, orderly: bool = False, **settings: Any
) -> push_consumer.PushConsumer:
    """Make an asynchronous push consumer. A plain listener runs on the event loop and must not block."""
    config = config_of(PushConsumerConfig, {"consumer_group": consumer_group, "namesrv_addr": namesrv_addr, **settings})
    return push_consumer.PushConsumer(config, system_environment(namesrv_addr), listener, orderly=orderly)


def async_lite_pull_consumer(
    consumer_group: str, namesrv_addr: str, **settings: Any
) -> lite_pull_consumer.LitePullConsumer:
    """Make an asynchronous lite pull consumer."""
    config = config_of(
        LitePullConsumerConfig, {"consumer_group": consumer_group, "namesrv_addr": namesrv_addr, **settings}
    )
    return lite_pull_consumer.LitePullConsumer(config, system_environment(namesrv_addr))


def async_simple_consumer(consumer_group: str, namesrv_addr: str, **settings: Any) -> simple_consumer.SimpleConsumer:
    """Make an asynchronous simple consumer."""
    config = config_of(
        SimpleConsumerConfig, {"consumer_group": consumer_group, "namesrv_addr": namesrv_addr, **settings}
    )
    return simple_consumer.SimpleConsumer(config, system_environment(namesrv_addr))


def async_admin(namesrv_addr: str, **settings: Any) -> admin.Admin:
    """Make an asynchronous admin client; `async with` it, on a running loop."""
    return admin.Admin(
        config_of(ClientConfig, {"namesrv_addr": namesrv_addr, **settings}), system_environment(namesrv_addr)
    )
