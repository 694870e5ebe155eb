"""The files of ACL 1.0 that somebody edits while they are changed on request."""

import asyncio
from pathlib import Path, PurePath
from typing import Any

import pytest

from maxq.access.plain_acl_files import PlainAclFiles
from maxq.errors import ConfigError
from maxq.runtime.files.system import SystemClock, SystemDisk
from maxq.testing.simulation import SimWorld, run_simulation

GOOD = "accounts:\n- accessKey: carol12\n  secretKey: carol-secret\n"


@pytest.mark.parametrize(
    "edited", ["accounts:\n- just a text\n", "accounts: {a: b}\n", "- a list\n", "accounts: [{}]\n"]
)
async def test_an_edit_that_is_no_such_file_is_not_built_upon(tmp_path: Path, edited: str) -> None:
    (tmp_path / "conf").mkdir()
    file = tmp_path / "conf" / "plain_acl.yml"
    file.write_text(GOOD)
    files = PlainAclFiles(SystemDisk(), tmp_path, clock=SystemClock())
    files.load()
    file.write_text(edited)
    with pytest.raises(ConfigError, match=r"plain_acl\.yml"):
        await files.update_account({"accessKey": "dora1234", "secretKey": "dora-secret"})
    with pytest.raises(ConfigError, match=r"plain_acl\.yml"):
        await files.delete_account("carol12")
    assert file.read_text() == edited and set(files.acl.accounts) == {"carol12"}
    file.write_text("accounts:\n")  # an empty list
    await files.update_account({"accessKey": "dora1234", "secretKey": "dora-secret"})
    assert set(files.acl.accounts) == {"dora1234"}


class WrittenWhileRead:
    """A disk on which somebody writes a file anew while it is read: what is read of it is the first half of that."""

    def __init__(self, disk: Any) -> None:
        self._disk = disk
        self.next_text = b""  # is written at the next read

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def read(self, path: PurePath) -> bytes:
        text, self.next_text = self.next_text, b""
        if not text:
            data: bytes = self._disk.read(path)
            return data
        self._disk.write(path, text)
        return text[: text.index(b"  topicPerms")]


RIGHTS = GOOD + "  defaultTopicPerm: PUB|SUB\n"
DENIED = RIGHTS + "  topicPerms: [secret=DENY]\n"


@pytest.mark.parametrize("by_request", [False, True])
def test_nobody_has_more_rights_while_a_file_is_written_anew(by_request: bool) -> None:
    async def main(world: SimWorld) -> None:
        path = PurePath("home/conf/plain_acl.yml")
        world.disk.make_dirs(path.parent)
        world.disk.write(path, DENIED.encode())
        disk = WrittenWhileRead(world.disk)
        files = PlainAclFiles(disk, PurePath("home"), clock=world.clock)
        files.load()
        files.start()
        world.disk.write(path, (DENIED + "# touched\n").encode())
        if by_request:  # comes when an editor has written half of it
            world.disk.write(path, RIGHTS.encode())
            request = asyncio.ensure_future(files.update_account({"accessKey": "dora1234", "secretKey": "dora-secret"}))
            await asyncio.sleep(0.1)
            world.disk.write(path, (DENIED + "# again\n").encode())
        else:
            disk.next_text = (DENIED + "# written while it was read\n").encode()
        for _ in range(30):
            await asyncio.sleep(0.1)
            assert "secret" in files.acl.accounts["carol12"].topic_perms
        if by_request:
            await request
        assert set(files.acl.accounts) == ({"carol12", "dora1234"} if by_request else {"carol12"})
        await files.shutdown()

    run_simulation(main, seed=1)


def test_a_file_counts_when_it_is_no_longer_being_written() -> None:
    more = GOOD + "- accessKey: dora1234\n  secretKey: dora-secret\n"

    async def main(world: SimWorld) -> set[str]:
        path = PurePath("home/conf/plain_acl.yml")
        world.disk.make_dirs(path.parent)
        world.disk.write(path, GOOD.encode())
        files = PlainAclFiles(world.disk, PurePath("home"), clock=world.clock)
        files.load()
        files.start()
        for end in range(0, len(more), 5):  # an editor that writes slowly: each look sees more of it
            world.disk.write(path, more[:end].encode())
            for _ in range(5):
                await asyncio.sleep(0.1)
                assert set(files.acl.accounts) == {"carol12"}
        world.disk.write(path, more.encode())
        await asyncio.sleep(1.2)
        await files.shutdown()
        return set(files.acl.accounts)

    assert run_simulation(main, seed=1) == {"carol12", "dora1234"}
