"""Failed messages on their way back: CONSUMER_SEND_MSG_BACK, else an ordinary send to the group's retry topic.

Source: apache/rocketmq client/impl/consumer/DefaultMQPushConsumerImpl.java (sendMessageBack,
sendMessageBackAsNormalMessage), ConsumeMessageOrderlyService.java (sendMessageBack).
"""

import logging

from maxq.client.instance.mq_client import MQClientInstance
from maxq.client.producer.message_sender import MessageSender
from maxq.errors import BrokerError, ClientError, RemotingError
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import Message, MessageExt
from maxq.protocol.namespace import retry_topic, wrap

log = logging.getLogger(__name__)

DEFAULT_MAX_RECONSUME_TIMES = 16
_SEND_TIMEOUT_MS = 5_000


class SendBack:
    """Sends failed messages back to brokers for one consumer group (name on the wire)."""

    def __init__(self, instance: MQClientInstance, sender: MessageSender, group: str, max_reconsume_times: int) -> None:
        self._instance = instance
        self._sender = sender
        self._group = group
        self._max_reconsume_times = DEFAULT_MAX_RECONSUME_TIMES if max_reconsume_times < 0 else max_reconsume_times

    async def send_back(self, message: MessageExt, delay_level: int, broker_name: str) -> bool:
        """Ask the broker to deliver a message again later.

        Args:
            delay_level: -1 to the dead-letter queue, 0 the broker decides, above 0 this level.

        Returns:
            False: nobody took it; it must be kept here.
        """
        address = self._instance.find_broker_address_in_publish(broker_name) or message.store_host_text
        try:
            await self._instance.api.send_message_back(
                address,
                self._group,
                message.physical_offset,
                delay_level=delay_level,
                origin_msg_id=message.msg_id,
                origin_topic=wrap(self._instance.config.namespace, message.topic),
                max_reconsume_times=self._max_reconsume_times,
                broker_name=broker_name,
            )
        except (BrokerError, RemotingError, ClientError) as error:
            return await self._send_as_normal_message(message, error)
        return True

    async def _send_as_normal_message(self, message: MessageExt, cause: Exception) -> bool:
        log.warning("message %s could not be handed back (%s), it is sent to the retry topic", message.msg_id, cause)
        return await self.send_to_retry(message)

    async def send_to_retry(self, message: MessageExt) -> bool:
        """Send a copy to the retry topic; the broker delays it, or makes it a dead letter after too many attempts."""
        properties = {name: value for name, value in message.properties.items() if name not in _DROPPED_PROPERTIES}
        properties[const.PROPERTY_ORIGIN_MESSAGE_ID] = message.properties.get(
            const.PROPERTY_ORIGIN_MESSAGE_ID, message.msg_id
        )
        properties[const.PROPERTY_RETRY_TOPIC] = wrap(self._instance.config.namespace, message.topic)
        properties[const.PROPERTY_RECONSUME_TIME] = str(message.reconsume_times + 1)
        properties[const.PROPERTY_MAX_RECONSUME_TIMES] = str(self._max_reconsume_times)
        properties[const.PROPERTY_DELAY_TIME_LEVEL] = str(3 + message.reconsume_times)
        copy = Message(retry_topic(self._group), message.body, properties, message.flag)
        try:
            await self._sender.send(self._sender.preparer.prepare_retry(copy), _SEND_TIMEOUT_MS, 0)
        except (RemotingError, BrokerError, ClientError) as error:
            log.warning("message %s could not be sent to the retry topic: %s", message.msg_id, error)
            return False
        return True


_DROPPED_PROPERTIES = frozenset(
    {
        const.PROPERTY_TRANSACTION_PREPARED,
        const.PROPERTY_MIN_OFFSET,
        const.PROPERTY_MAX_OFFSET,
        const.PROPERTY_CONSUME_START_TIMESTAMP,
    }
)
