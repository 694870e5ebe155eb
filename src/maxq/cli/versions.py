"""Names of RocketMQ's version numbers, such as V5_5_0 for 513."""

from maxq.codes import MQVersion

_NAMES = {int(version): version.name for version in MQVersion}


def version_name(ordinal: int) -> str:
    """RocketMQ's name of a release; its number where the release decides nothing and has no name here."""
    return _NAMES.get(ordinal, f"ordinal {ordinal}")
