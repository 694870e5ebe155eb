"""Small file systems of one's own, which tests fill up."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

_STEP = 64 << 20
_BLOCK = 1024


class NotAllowedError(Exception):
    """This machine, or this user, may not do that; the text says what and why."""


def run_allowed(*commands: Sequence[str]) -> None:
    """Run commands that need rights.

    Raises:
        NotAllowedError: one is not there, or failed.
    """
    for command in commands:
        try:
            done = subprocess.run(command, capture_output=True, check=False)
        except FileNotFoundError:
            raise NotAllowedError(f"{command[0]} is not there") from None
        if done.returncode:
            raise NotAllowedError(f"{' '.join(command)}: {done.stderr.decode(errors='replace').strip()}")


class MountedDisk:
    """`kind` is tmpfs, ext4, or ext4-1k, of blocks that are smaller than a page; the latter two in an image beside the
    folder.

    Attributes:
        folder: where it is mounted, once it is.
    """

    def __init__(self, folder: Path, kind: str, size: int) -> None:
        self.folder = folder
        self._kind = kind
        self._size = size
        self._ballast = folder / "ballast"

    def mount(self) -> None:
        """Make it, empty.

        Raises:
            NotAllowedError: it cannot be mounted here.
        """
        self.folder.mkdir(parents=True)
        if self._kind == "tmpfs":
            run_allowed(["mount", "-t", "tmpfs", "-o", f"size={self._size}", "tmpfs", str(self.folder)])
            return
        image = self.folder.with_name(self.folder.name + ".ext4")
        with open(image, "wb") as file:
            file.truncate(self._size)
        blocks = ["-b", "1024"] if self._kind == "ext4-1k" else []
        run_allowed(
            ["mkfs.ext4", "-q", "-F", "-m", "0", *blocks, str(image)],
            ["mount", "-o", "loop", str(image), str(self.folder)],
        )

    def unmount(self) -> None:
        """Nobody uses it any more."""
        subprocess.run(["umount", str(self.folder)], check=True)

    def fill(self) -> None:
        """Leave no block free."""
        with open(self._ballast, "ab") as file:
            step = _STEP
            while step >= _BLOCK:
                try:
                    os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, step)
                except OSError:
                    step //= 2

    def free(self) -> None:
        """There is room again."""
        self._ballast.unlink()
