"""May something be stored now, and if not, why (DefaultMessageStore.checkStoreStatus, CommitLog's page cache busy)."""

from collections.abc import Callable

from maxq.runtime.refusals import Cause, explain
from maxq.store.context.store_context import StoreContext
from maxq.store.files.disk_room import DiskRoom, lacks_room
from maxq.store.log.commit_log import CommitLog
from maxq.store.store_results import PutMessageResult, PutMessageStatus

_IGNORE_BUSY_MS = 10_000_000


class AppendAdmission:
    """The checks before an append and the bookkeeping after it, shared by MessageWriter and FastPathWriter.

    Attributes:
        is_open: the store is loaded, and not closed yet.
    """

    def __init__(self, context: StoreContext, commit_log: CommitLog, disk_room: DiskRoom) -> None:
        self._context = context
        self._commit_log = commit_log
        self._disk_room = disk_room
        self.is_open = False
        self._busy_until_ms = 0
        self._slow_append_ms = 0

    def refusal(self) -> PutMessageStatus | None:
        """Return why no message may be stored at the moment; None if messages may be stored. Cheap: call it before
        every batch.

        Page cache busy: an append that took longer than osPageCacheBusyTimeOutMills held up the whole loop; requests
        that piled up behind it are refused for as long as it took, as Java refuses those that find the append lock
        held.
        """
        context = self._context
        config = context.config
        if not self.is_open or not context.flags.writable or config.broker_role == "SLAVE":
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        if config.enable_dleger_commit_log and not context.is_leading:
            return PutMessageStatus.SERVICE_NOT_AVAILABLE
        if self._busy_until_ms:
            if self._context.clock.monotonic_ms() < self._busy_until_ms:
                return PutMessageStatus.OS_PAGE_CACHE_BUSY
            self._busy_until_ms = 0
        return None

    def remark(self) -> str:
        """Return the cause of `refusal`, with measured value, limit and remedy; empty if there is none."""
        if not self.is_open:
            return "the store is closed: this broker is starting or shutting down"
        if self._context.config.broker_role == "SLAVE":
            master = self._context.master_address
            what = f"[{Cause.NOT_MASTER}]this broker is a SLAVE: it copies its master and takes no messages"
            return f"{what}; send to the master" + (f" {master}" if master else "") + self._also()
        if self._context.is_dledger and not self._context.is_leading:
            what = "this broker does not lead its DLedger group now: it copies the leader's log; send to the leader"
            return what + self._also()
        if not self._context.flags.writable:
            return f"the store is not writable: {self._context.flags.why()}"
        if self._busy_until_ms:
            limit = self._context.config.os_page_cache_busy_time_out_mills
            return explain(
                Cause.PCBUSY_CLEAN_QUEUE,
                f"broker busy: an append took {self._slow_append_ms} ms",
                limit=f"{limit} ms (osPageCacheBusyTimeOutMills)",
                remedy="the disk does not keep up, send less or retry later",
            )
        return ""

    def _also(self) -> str:
        """Return why a member of a DLedger group that does not lead rejects entries from a leader; empty if it accepts
        them. If a majority of the group rejects for this reason, the group has no leader, or its leader can store
        nothing."""
        context = self._context
        if not context.is_dledger or context.flags.writable:
            return ""
        return f"; its own store is not writable: {context.flags.why()}"

    def make_room(self, size: int = 0) -> PutMessageResult | None:
        """Make room for a record of `size` bytes, in the current file or a new one. Returns the refusal to answer with
        if there is none."""
        return self.room(lambda: self._commit_log.make_room(size), size)

    def room(self, find: Callable[[], None], size: int) -> PutMessageResult | None:
        """Call `find`, which finds room for `size` bytes or raises OSError. Returns the refusal to answer with if
        there is none."""
        try:
            find()
        except OSError as error:
            if lacks_room(error):
                self._disk_room.lacks(error, size)
                return PutMessageResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, remark=self.remark())
            return PutMessageResult(
                PutMessageStatus.CREATE_MAPPED_FILE_FAILED,
                remark=f"the next CommitLog file could not be made: {error}; free space or repair the disk",
            )
        return None

    def took(self, began_ms: int) -> int:
        """Note the end of an append that began at `began_ms`. Returns how long it took, in ms."""
        now = self._context.clock.monotonic_ms()
        took_ms = now - began_ms
        if took_ms:
            limit = self._context.config.os_page_cache_busy_time_out_mills
            if took_ms > limit and limit < _IGNORE_BUSY_MS:
                self._slow_append_ms = took_ms
                self._busy_until_ms = now + min(took_ms, limit)
        return took_ms
