"""The property text of a message: `name \\x01 value \\x02`, repeated.

Source:
    common/message/MessageDecoder.java, messageProperties2String and string2messageProperties.
"""

from collections.abc import Mapping

from maxq.protocol.message_const import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR


def encode_properties(properties: Mapping[str, str]) -> str:
    """The text form, pairs in the mapping's order, with a separator after the last pair."""
    return "".join(
        [f"{name}{NAME_VALUE_SEPARATOR}{value}{PROPERTY_SEPARATOR}" for name, value in properties.items()]
    )  # fmt: skip


def decode_properties(text: str | bytes | memoryview | None) -> dict[str, str]:
    """The pairs of a property text. Never fails: a chunk without name or value is skipped, the last of equal names
    wins, a missing final separator is fine. Bytes are UTF-8; what is not is replaced, as Java does."""
    if not text:
        return {}
    if not isinstance(text, str):
        text = str(text, "utf-8", "replace")
    properties: dict[str, str] = {}
    for chunk in text.split(PROPERTY_SEPARATOR):
        name, separator, value = chunk.partition(NAME_VALUE_SEPARATOR)
        if separator and name and value:
            properties[name] = value
    return properties
