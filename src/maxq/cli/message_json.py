"""A message as one JSON object, and back: what `consume --json` prints, `produce --json` takes."""

import base64
from typing import Any

from maxq.errors import ConfigError
from maxq.protocol.message import Message, MessageExt


def message_object(message: MessageExt) -> dict[str, Any]:
    """All of a stored message, named as `maxq store messages` names it; a body that is no UTF-8 is `bodyBase64`."""
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


def message_of(value: Any, topic: str, where: str) -> Message:
    """A message to send: `body` or `bodyBase64`, and optionally `tags`, `keys` (text or list), `flag`, `properties`.

    Raises:
        ConfigError: not such an object; `where` names the line.
    """
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is not a JSON object")
    body = value.get("body")
    if "bodyBase64" in value:
        try:
            data = base64.b64decode(str(value["bodyBase64"]), validate=True)
        except ValueError:
            raise ConfigError(f"{where}: bodyBase64 is not base64") from None
    elif isinstance(body, str):
        data = body.encode()
    else:
        raise ConfigError(f"{where} has neither a text body nor bodyBase64")
    properties = value.get("properties") or {}
    if not isinstance(properties, dict):
        raise ConfigError(f"{where}: properties must be an object")
    message = Message(topic, data)
    message.properties.update({str(key): str(item) for key, item in properties.items() if key not in _NOT_OURS})
    if isinstance(value.get("flag"), int):
        message.flag = value["flag"]
    if value.get("tags"):
        message.tags = str(value["tags"])
    keys = value.get("keys")
    if keys:
        message.keys = [str(key) for key in keys] if isinstance(keys, list) else str(keys)
    return message
