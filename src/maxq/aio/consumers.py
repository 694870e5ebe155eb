"""The consumers of `maxq.aio`, which loads them when they are first asked for."""

from typing import Unpack

from maxq.client.argument_checks import config_of
from maxq.client.client_config import LitePullConsumerConfig, PushConsumerConfig, SimpleConsumerConfig
from maxq.client.consumer import lite_pull_consumer, push_consumer, simple_consumer
from maxq.client.results.consume_result import MessageListener
from maxq.client.settings import LitePullConsumerSettings, PushConsumerSettings, SimpleConsumerSettings
from maxq.machine import system_environment


class PushConsumer(push_consumer.PushConsumer):
    """Calls a listener with the messages of its topics, as a member of a consumer group. Call `subscribe`, then start
    it with `async with`, or `await consumer.start()` and `await consumer.shutdown()`.

    Args:
        consumer_group: name of the group.
        namesrv_addr: host:port of name servers, separated by ';'.
        listener: called as `listener(messages, context)`; a coroutine function, or a plain one that runs on the event
            loop and must not block.
        orderly: one call at a time per queue, in order.
        settings: see maxq.client.settings.PushConsumerSettings.
    """

    def __init__(
        self,
        consumer_group: str,
        namesrv_addr: str,
        listener: MessageListener,
        *,
        orderly: bool = False,
        **settings: "Unpack[PushConsumerSettings]",
    ) -> None:
        config = config_of(
            PushConsumerConfig, {"consumer_group": consumer_group, "namesrv_addr": namesrv_addr, **settings}
        )
        super().__init__(config, system_environment(namesrv_addr), listener, orderly=orderly)


class LitePullConsumer(lite_pull_consumer.LitePullConsumer):
    """Gives messages to a program that polls for them and decides where it reads. Call `subscribe` (the group shares
    the queues) or `assign`, then start it with `async with`, or `await consumer.start()` and
    `await consumer.shutdown()`.

    Args:
        consumer_group: name of the group.
        namesrv_addr: host:port of name servers, separated by ';'.
        settings: see maxq.client.settings.LitePullConsumerSettings.
    """

    def __init__(self, consumer_group: str, namesrv_addr: str, **settings: "Unpack[LitePullConsumerSettings]") -> None:
        config = config_of(
            LitePullConsumerConfig, {"consumer_group": consumer_group, "namesrv_addr": namesrv_addr, **settings}
        )
        super().__init__(config, system_environment(namesrv_addr))


class SimpleConsumer(simple_consumer.SimpleConsumer):
    """Receives messages one batch at a time and acknowledges each by itself; any number of members share a queue. Call
    `subscribe`, then start it with `async with`, or `await consumer.start()` and `await consumer.shutdown()`.

    Args:
        consumer_group: name of the group.
        namesrv_addr: host:port of name servers, separated by ';'.
        settings: see maxq.client.settings.SimpleConsumerSettings.
    """

    def __init__(self, consumer_group: str, namesrv_addr: str, **settings: "Unpack[SimpleConsumerSettings]") -> None:
        config = config_of(
            SimpleConsumerConfig, {"consumer_group": consumer_group, "namesrv_addr": namesrv_addr, **settings}
        )
        super().__init__(config, system_environment(namesrv_addr))
