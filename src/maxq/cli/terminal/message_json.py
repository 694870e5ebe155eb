"""A message as one JSON object, and back: what `consume --json` prints, `produce --json` takes."""

import base64
from typing import Any

from maxq.client.admin.dead_letters import NOT_SENT_AGAIN
from maxq.errors import ConfigError, LocalProtocolError
from maxq.protocol.message import message_const as const
from maxq.protocol.message.message import Message, MessageExt


def message_object(message: MessageExt) -> dict[str, Any]:
    """Return all fields of a stored message, named as `maxq store messages` names them; a body that is not UTF-8 is
    `bodyBase64`."""
    found: dict[str, Any] = {
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "size": message.store_size,
        "msgId": message.offset_msg_id,
        "uniqKey": message.uniq_key,
        "tags": message.tags,
        "keys": message.keys,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": message.born_host_text,
        "storeHost": message.store_host_text,
        "reconsumeTimes": message.reconsume_times,
        "properties": dict(sorted(message.properties.items())),
    }
    body = bytes(message.body)
    try:
        found["body"] = body.decode("utf-8")
    except UnicodeDecodeError:
        found["bodyBase64"] = base64.b64encode(body).decode()
    if message.body_fault:
        found["bodyFault"] = message.body_fault
    return found


#: Properties that the broker or the client library set; a copy of a message must not carry them.
_NOT_OURS = frozenset(
    {"UNIQ_KEY", "WAIT", "MIN_OFFSET", "MAX_OFFSET", "CLUSTER", "MSG_REGION", "TRACE_ON", "CONSUME_START_TIME"}
)
#: The same for a message that was stored: its copy is not delayed again, is no half of a transaction, and does not go
#: to the original's retry topic when it is given back.
_NOT_COPIED = _NOT_OURS | NOT_SENT_AGAIN | {const.PROPERTY_RETRY_TOPIC, const.PROPERTY_ORIGIN_MESSAGE_ID}
_INT32_MAX = 2**31 - 1


def message_of(value: Any, topic: str, where: str) -> Message:
    """A message to send: `body` or `bodyBase64`, and optionally `tags`, `keys` (text or list), `flag`, `properties`. A
    value of null counts as left out, also among the properties. An object with a `queueOffset` is a stored message:
    properties that brokers have added to it are left out.

    Raises:
        ConfigError: the value is not such an object; `where` names the line.
    """
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is not a JSON object")
    properties = value.get("properties")
    if properties is not None and not isinstance(properties, dict):
        raise ConfigError(f"{where}: properties must be an object")
    message = Message(topic, _body(value, where))
    left_out = _NOT_OURS if value.get("queueOffset") is None else _NOT_COPIED
    for name, item in (properties or {}).items():
        if item is not None and name not in left_out:
            message.properties[name] = _text(item, f"{where}: property {name}")
    flag = value.get("flag")
    if flag is not None:
        if type(flag) is not int or not -_INT32_MAX - 1 <= flag <= _INT32_MAX:
            raise ConfigError(f"{where}: flag must be a whole number of 32 bits")
        message.flag = flag
    if value.get("tags"):
        message.tags = _text(value["tags"], f"{where}: tags")
    keys = value.get("keys")
    if keys:
        each = keys if isinstance(keys, list) else [keys]
        texts = [_text(key, f"{where}: keys") for key in each]
        try:
            message.keys = texts if isinstance(keys, list) else texts[0]
        except LocalProtocolError as error:
            raise ConfigError(f"{where}: {error}") from None
    return message


def _body(value: dict[str, Any], where: str) -> bytes:
    body, encoded = value.get("body"), value.get("bodyBase64")
    if encoded is not None:
        try:
            if isinstance(encoded, str):
                return base64.b64decode(encoded, validate=True)
        except ValueError:
            pass  # refused below
        raise ConfigError(f"{where}: bodyBase64 is not base64")
    if not isinstance(body, str):
        raise ConfigError(f"{where} has neither a text body nor bodyBase64")
    return body.encode()


def _text(item: Any, where: str) -> str:
    """Return a text; numbers, true and false as JSON has them. Anything else would be sent as Python prints it."""
    if isinstance(item, str):
        return item
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, int | float):
        return str(item)
    raise ConfigError(f"{where} must be text")
