"""The property text of a message: `name \\x01 value \\x02`, repeated.

Source:
    common/message/MessageDecoder.java, messageProperties2String and string2messageProperties.
"""

from collections.abc import Mapping

from maxq.errors import LocalProtocolError
from maxq.protocol.message.message_const import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR


def encode_properties(properties: Mapping[str, str]) -> str:
    """Encode properties as text, pairs in the mapping's order, with a separator after the last pair.

    Raises:
        LocalProtocolError: a name or value is not a str, or has a separator in it that would make other pairs of it.
    """
    try:
        text = "".join(
            [name + NAME_VALUE_SEPARATOR + value + PROPERTY_SEPARATOR for name, value in properties.items()]
        )  # fmt: skip
    except TypeError:
        raise LocalProtocolError(_not_text(properties)) from None
    count = len(properties)
    if text.count(PROPERTY_SEPARATOR) != count or text.count(NAME_VALUE_SEPARATOR) != count:
        _check_separators(properties)
    return text


def _not_text(properties: Mapping[str, str]) -> str:
    for name, value in properties.items():
        if not isinstance(name, str):
            return f"the name {name!r:.60} of a property is of type {type(name).__name__}; names are str"
        if not isinstance(value, str):
            return (
                f"the value of the property {name!r:.60} is of type {type(value).__name__}; values are str: convert "
                "it, or leave the property out"
            )
    return "names and values of properties are str"


def _check_separators(properties: Mapping[str, str]) -> None:
    """Check for separators. A value may hold the byte between name and value, because readers take the first one."""
    for name, value in properties.items():
        if PROPERTY_SEPARATOR in name or NAME_VALUE_SEPARATOR in name or PROPERTY_SEPARATOR in value:
            raise LocalProtocolError(
                f"the property {name!r:.60} has a control character U+0001 or U+0002 in its name, or U+0002 in its "
                "value; these separate properties on the wire: leave them out"
            )


def decode_properties(text: str | bytes | memoryview | None) -> dict[str, str]:
    """Decode the pairs of a property text. Never fails: a chunk without name or value is skipped, the last of equal
    names wins, a missing final separator is fine. Bytes are UTF-8; invalid ones are replaced, as in Java."""
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
