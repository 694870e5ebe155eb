"""DLedgerRoleChangeHandler: makes the broker what its member of the group became.

    LEADER      when an entry of its own term is committed, and with it all before: master, id 0
    others      slave, id = number in dLegerSelfId + 1

The newest change counts: one that came while another was carried out replaces what waits, and a step for an older term
is dropped. Becoming a slave begins, at once, with refusing all writes. A master that lost the lead and has it again
becomes a slave in between all the same: what its services remember of the end of the log is of another leadership.

Source:
    broker/dledger/DLedgerRoleChangeHandler.java.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from maxq.replication.dledger.dledger_server import DLedgerServer
from maxq.replication.raft.outputs import Role, RoleChange
from maxq.runtime.background import count_failure

log: Final = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


class DLedgerRoleChangeHandler:
    """Changes the broker's role when its member's role changes; works between `start` and `stop`."""

    def __init__(self, member: DLedgerServer, slave_id: int) -> None:
        """Begin to listen for changes. `slave_id` is the broker's id while another member leads."""
        self._member = member
        self._slave_id = slave_id
        self._change_to_master: Callable[[], Awaitable[None]] = _nothing
        self._change_to_slave: Callable[[int], Awaitable[None]] = _nothing
        self._wanted: RoleChange | None = None
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_master = False
        self._refuse_writes: Callable[[], None] = lambda: None
        self._leader_id: str | None = None  # whom this slave copies from
        member.set_role_listener(self._on_role)
        member.set_commit_listener(self._on_commit)

    def start(
        self,
        change_to_master: Callable[[], Awaitable[None]],
        change_to_slave: Callable[[int], Awaitable[None]],
        refuse_writes: Callable[[], None],
    ) -> None:
        """Apply the role changes received so far and all later ones. With `refuse_writes` nothing is stored until the
        broker becomes master again."""
        self._refuse_writes = refuse_writes
        self._change_to_master = change_to_master
        self._change_to_slave = change_to_slave
        self._task = asyncio.get_running_loop().create_task(self._run(), name="DLedgerRoleChangeHandler")

    async def stop(self) -> None:
        """Stop applying changes; the broker keeps its role."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _on_role(self, change: RoleChange) -> None:
        self._wanted = change
        if change.role is not Role.LEADER and self._is_master:
            self._refuse_writes()
        self._woken.set()

    def _on_commit(self, index: int) -> None:
        if self._wanted is not None:
            self._woken.set()

    async def _run(self) -> None:
        while True:
            await self._woken.wait()
            self._woken.clear()
            change = self._wanted
            if change is None or (change.role is Role.LEADER and not self._may_lead(change.term)):
                continue
            self._wanted = None
            try:
                await self._carry_out(change)
            except Exception:  # try this change again later, unless a newer one comes before
                count_failure("change of role")
                log.exception("the broker could not follow the new role of its DLedger member, %s", change.role.value)
                self._wanted = self._wanted or change
                asyncio.get_running_loop().call_later(_RETRY_SECONDS, self._woken.set)

    def _may_lead(self, term: int) -> bool:
        """Return whether all entries that the log had when this member was elected are committed."""
        store = self._member.store
        committed = store.committed_index
        return committed >= max(store.begin_index, 0) and store.term_of(committed) == term

    async def _carry_out(self, change: RoleChange) -> None:
        if change.role is Role.LEADER:
            if self._is_master:
                await self._change_to_slave(self._slave_id)
            self._is_master = True
            await self._change_to_master()
        elif self._is_master or change.leader_id != self._leader_id:
            await self._change_to_slave(self._slave_id)
            self._is_master = False
        self._leader_id = change.leader_id


async def _nothing(*_: object) -> None:
    """Do nothing: the wake-up of a handler that was not started."""
