"""MessageRequestModeManager: how each group asks for the messages of each topic, where an administrator said so.

Source:
    broker/loadbalance/MessageRequestModeManager.java.
"""

from collections.abc import Collection
from pathlib import PurePath
from typing import Any, Final

from maxq.broker.tables.persistent_manager import PersistentManager
from maxq.protocol.body.consumer_info import MessageRequestModeSerializeWrapper, SetMessageRequestModeRequestBody
from maxq.runtime.interfaces import Disk

FILE_NAME: Final = "messageRequestMode.json"


class MessageRequestModeManager(PersistentManager):
    """Holds the modes (pull or pop) that operators have set for a topic and a group."""

    def __init__(self, disk: Disk, path: PurePath) -> None:
        super().__init__(disk, path)
        self._modes: dict[str, dict[str, SetMessageRequestModeRequestBody]] = {}

    def get_message_request_mode(self, topic: str, group: str) -> SetMessageRequestModeRequestBody | None:
        """Returns the mode that was set; None if none was."""
        return self._modes.get(topic, {}).get(group)

    def set_message_request_mode(self, mode: SetMessageRequestModeRequestBody) -> None:
        self._modes[mode.topic] = {**self._modes.get(mode.topic, {}), mode.consumer_group: mode}
        self.request_persist()

    def forget(self, topics: Collection[str] = (), groups: Collection[str] = ()) -> None:
        """Remove the modes of topics or groups that were deleted."""
        kept = {
            topic: {group: mode for group, mode in modes.items() if group not in groups}
            for topic, modes in self._modes.items()
            if topic not in topics
        }
        kept = {topic: modes for topic, modes in kept.items() if modes}
        if kept != self._modes:
            self._modes = kept
            self.request_persist()

    def take_from_master(self, value: dict[str, Any]) -> None:
        """Replace this table by the master's. Raises RemoteProtocolError if the value has another form; nothing is
        changed then."""
        taken = MessageRequestModeSerializeWrapper.from_json(value).message_request_mode_map
        if taken != self._modes:
            self._modes = taken
            self.request_persist()

    def to_json(self) -> dict[str, Any]:
        return MessageRequestModeSerializeWrapper(dict(self._modes)).to_json()

    def from_json(self, value: dict[str, Any]) -> None:
        self._modes = MessageRequestModeSerializeWrapper.from_json(value).message_request_mode_map
