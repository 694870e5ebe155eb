"""The forms of a message of a transaction.

    sent         TRAN_MSG=true, PGROUP; real topic and queue
    half         in RMQ_SYS_TRANS_HALF_TOPIC, queue 0: REAL_TOPIC, REAL_QID, __transactionId__ added, transaction bits 0
    copy         a half message written again by a check: TRANSACTION_CHECK_TIMES, and TRAN_PREPARED_QUEUE_OFFSET, the
                 queue offset of the first half message of its transaction (its origin)
    final        in the real topic: transaction bits 8, preparedTransactionOffset = physical offset of the half message;
                 stored properties are the half message's, REAL_TOPIC, REAL_QID and TRAN_MSG among them
    given up     in TRANS_CHECK_MAX_TIME_TOPIC

Source:
    broker/transaction/queue/{TransactionalMessageBridge,DefaultTransactionalMessageCheckListener,
    TransactionalMessageUtil}.java, processor/EndTransactionProcessor.java.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from maxq.broker.tables.topic.topic_validator import TRANS_CHECK_MAX_TIME_TOPIC, TRANS_HALF_TOPIC
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import MessageExt, encode_record
from maxq.protocol.message.message_sys_flag import MessageSysFlag, with_transaction_type
from maxq.protocol.message.transaction_view import number, origin_of
from maxq.store.append.message_ext_broker_inner import MessageExtBrokerInner

#: Half messages have one queue.
HALF_QUEUE_ID: Final = 0

_ORIGIN: Final = const.PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET
_OF_A_COPY: Final = (_ORIGIN, const.PROPERTY_TRANSACTION_CHECK_TIMES)
_HIDDEN: Final = (const.PROPERTY_REAL_TOPIC, const.PROPERTY_REAL_QUEUE_ID, const.PROPERTY_TRANSACTION_PREPARED)


def opens_transaction(properties: Mapping[str, str], reconsume_times: int = 0) -> bool:
    """Return whether this message is to be held back as a half message. Old clients leave TRAN_MSG on messages that
    they send back with a delay."""
    if properties.get(const.PROPERTY_TRANSACTION_PREPARED, "").lower() != "true":
        return False
    return not (reconsume_times > 0 and number(properties, const.PROPERTY_DELAY_TIME_LEVEL, 0) > 0)


def turn_away(message: MessageExtBrokerInner) -> bool:
    """Turn a message that opens a transaction into a half message, in place; returns False for any other message."""
    properties = message.properties
    if const.PROPERTY_TRANSACTION_PREPARED not in properties:
        return False
    if message.topic == TRANS_HALF_TOPIC or message.sys_flag & MessageSysFlag.TRANSACTION_COMMIT:
        return False  # it is a half message already, or was one
    if not opens_transaction(properties, message.reconsume_times):
        message.sys_flag = with_transaction_type(message.sys_flag, 0)
        return False
    unique_key = properties.get(const.PROPERTY_UNIQ_CLIENT_MESSAGE_ID_KEYIDX)
    if unique_key:
        properties[const.PROPERTY_TRANSACTION_ID] = unique_key
    for name in _OF_A_COPY:  # the producer has copied these properties from a message that it consumed
        properties.pop(name, None)
    properties[const.PROPERTY_REAL_TOPIC] = message.topic
    properties[const.PROPERTY_REAL_QUEUE_ID] = str(message.queue_id)
    message.sys_flag = with_transaction_type(message.sys_flag, 0)
    message.topic = TRANS_HALF_TOPIC
    message.queue_id = HALF_QUEUE_ID
    return True


def copy_of(half: MessageExt, check_times: int | None = None) -> MessageExtBrokerInner:
    """Make a copy of the half message for the end of the half topic.

    Args:
        check_times: how often its producer was asked, this time included; None leaves the number as it is.
    """
    properties = dict(half.properties)
    properties[_ORIGIN] = str(origin_of(half))
    if check_times is not None:
        properties[const.PROPERTY_TRANSACTION_CHECK_TIMES] = str(check_times)
    return _inner(half, TRANS_HALF_TOPIC, HALF_QUEUE_ID, properties)


def given_up(half: MessageExt) -> MessageExtBrokerInner:
    """Make the message that records an abandoned transaction."""
    properties = {**half.properties, _ORIGIN: str(origin_of(half))}
    return _inner(half, TRANS_CHECK_MAX_TIME_TOPIC, 0, properties)


def final_message(half: MessageExt, properties: bytes) -> MessageExtBrokerInner:
    """Make the message that consumers get when the transaction is committed.

    Args:
        properties: the property text of the half message as it is stored. The final message has the same, so it need
            not be made anew.
    """
    known = half.properties
    message = _inner(
        half,
        known.get(const.PROPERTY_REAL_TOPIC, ""),
        number(known, const.PROPERTY_REAL_QUEUE_ID, 0),
        {name: value for name, value in known.items() if name not in _HIDDEN},
    )
    if const.PROPERTY_CRC32 not in known:  # the half message's checksum would be wrong for the final message
        message.properties_data = properties
    message.sys_flag = with_transaction_type(half.sys_flag, MessageSysFlag.TRANSACTION_COMMIT)
    message.prepared_transaction_offset = half.physical_offset
    return message


def opened_again(half: MessageExt) -> MessageExtBrokerInner:
    """Make the message as its producer sent it, to open its transaction at another broker group."""
    properties = {
        name: value
        for name, value in half.properties.items()
        if name not in (_ORIGIN, const.PROPERTY_REAL_TOPIC, const.PROPERTY_REAL_QUEUE_ID)
    }
    properties[const.PROPERTY_TRANSACTION_PREPARED] = "true"
    message = _inner(half, half.properties.get(const.PROPERTY_REAL_TOPIC, ""), 0, properties)
    message.sys_flag = with_transaction_type(half.sys_flag, MessageSysFlag.TRANSACTION_PREPARED)
    return message


def check_body(half: MessageExt) -> bytes:
    """Return the record that a producer is shown: with its real topic and queue, otherwise as it is stored."""
    known = half.properties
    shown = replace(
        half,
        topic=known.get(const.PROPERTY_REAL_TOPIC, ""),
        queue_id=number(known, const.PROPERTY_REAL_QUEUE_ID, 0),
    )
    return encode_record(shown)


def _inner(half: MessageExt, topic: str, queue_id: int, properties: dict[str, str]) -> MessageExtBrokerInner:
    properties.pop(const.PROPERTY_CRC32, None)
    return MessageExtBrokerInner(
        topic,
        queue_id,
        half.body,
        properties,
        flag=half.flag,
        sys_flag=half.sys_flag,
        born_timestamp=half.born_timestamp,
        born_host=half.born_host,
        store_host=half.store_host,
        reconsume_times=half.reconsume_times,
    )
