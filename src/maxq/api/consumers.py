"""The consumers of `maxq.api`, which loads them when they are first asked for."""

from typing import Unpack

from maxq.client.argument_checks import config_of
from maxq.client.blocking import consumers
from maxq.client.client_config import LitePullConsumerConfig, PushConsumerConfig, SimpleConsumerConfig
from maxq.client.results.consume_result import MessageListener
from maxq.client.settings import LitePullConsumerSettings, PushConsumerSettings, SimpleConsumerSettings
from maxq.machine import new_event_loop, system_environment


class PushConsumer(consumers.PushConsumer):
    """Calls a listener with the messages of its topics, as a member of a consumer group. Call `subscribe`, then start
    it with `with`, or `start()` and `shutdown()`.

    Args:
        consumer_group: name of the group.
        namesrv_addr: host:port of name servers, separated by ';'.
        listener: called as `listener(messages, context)`; a plain function, which runs in one of `consume_thread_nums`
            threads and may block, or a coroutine function.
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
        super().__init__(
            config, system_environment(namesrv_addr), listener, orderly=orderly, loop_factory=new_event_loop
        )


class LitePullConsumer(consumers.LitePullConsumer):
    """Gives messages to a program that polls for them and decides where it reads. Call `subscribe` (the group shares
    the queues) or `assign`, then start it with `with`, or `start()` and `shutdown()`. Several threads may poll.

    Args:
        consumer_group: name of the group.
        namesrv_addr: host:port of name servers, separated by ';'.
        settings: see maxq.client.settings.LitePullConsumerSettings.
    """

    def __init__(self, consumer_group: str, namesrv_addr: str, **settings: "Unpack[LitePullConsumerSettings]") -> None:
        config = config_of(
            LitePullConsumerConfig, {"consumer_group": consumer_group, "namesrv_addr": namesrv_addr, **settings}
        )
        super().__init__(config, system_environment(namesrv_addr), loop_factory=new_event_loop)


class SimpleConsumer(consumers.SimpleConsumer):
    """Receives messages one batch at a time and acknowledges each by itself; any number of members share a queue. Call
    `subscribe`, then start it with `with`, or `start()` and `shutdown()`. Several threads may receive.

    Args:
        consumer_group: name of the group.
        namesrv_addr: host:port of name servers, separated by ';'.
        settings: see maxq.client.settings.SimpleConsumerSettings.
    """

    def __init__(self, consumer_group: str, namesrv_addr: str, **settings: "Unpack[SimpleConsumerSettings]") -> None:
        config = config_of(
            SimpleConsumerConfig, {"consumer_group": consumer_group, "namesrv_addr": namesrv_addr, **settings}
        )
        super().__init__(config, system_environment(namesrv_addr), loop_factory=new_event_loop)
