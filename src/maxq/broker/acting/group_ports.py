"""What the members of a group use of replication and metadata sync."""

from typing import Protocol


class HALink(Protocol):
    """Replication (HAService)."""

    def update_master_ha_address(self, address: str) -> None:
        """Copy from `host:port` at once; an empty text: from nobody."""

    async def wait_until_transfer(self, host: str, timeout_ms: int) -> bool:
        """On a master: does a slave at `host` copy within that time? On a slave: does this broker itself?"""


class MetadataSync(Protocol):
    """Copying of the master's tables (RoleService, which passes it on to SlaveSynchronize)."""

    @property
    def master_address(self) -> str:
        """`host:port`; empty while none is known."""

    def set_master_address(self, address: str) -> None:
        """Copy from `host:port` at once; an empty text: from nobody."""
