"""What these tests have in common."""

from tests.disk_with_room import disk_with_room
from tests.watched_processes import file_of_holds, no_process_held_its_loop, started_cold

__all__ = ["disk_with_room", "file_of_holds", "no_process_held_its_loop", "started_cold"]
