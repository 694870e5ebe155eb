"""What these tests have in common."""

from tests.disk_with_room import disk_with_room

__all__ = ["disk_with_room"]
