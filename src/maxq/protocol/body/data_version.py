"""DataVersion: tells two copies of a table apart."""

from maxq.protocol.json.json_body import JsonBody, json_body


@json_body
class DataVersion(JsonBody):
    """Equal when counter, timestamp and state version are. `timestamp` is wall time in ms.

    Source:
        remoting/protocol/DataVersion.java.
    """

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0

    def next_version(self, now_ms: int, state_version: int = 0) -> None:
        """Change this version to the one after a change of its table."""
        self.timestamp = now_ms
        self.state_version = state_version
        self.counter += 1

    def assign(self, other: "DataVersion") -> None:
        """Adopt another copy's version (assignNewOne)."""
        self.counter, self.state_version, self.timestamp = other.counter, other.state_version, other.timestamp

    def copy(self) -> "DataVersion":
        return DataVersion(self.counter, self.state_version, self.timestamp)
