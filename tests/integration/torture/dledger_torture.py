"""Three brokers of one DLedger group as real processes, and everything that may happen to them:
`python -m tests.integration.torture.dledger_torture --rounds N [--partitions N] [--seed S]`.

Producers send all the time. Each round does something to one or several members, to the links between them, or to their
disks; then, where network namespaces may be made, rounds with a network that loses packets. When sends are acknowledged
again and all members have the same:

* every message that was acknowledged is in the log of every member, byte for byte, where the answer said (who had a
  full disk may have deleted its oldest files);
* the logs are equal; terms never fall within one; entries have the indexes and positions that they should have;
* in the end all stop cleanly, and no term had two leaders.
"""

import asyncio
import contextlib
import hashlib
import itertools
import random
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from benches.load.frames import code_and_opaque, encode, ext_field

from maxq.client.admin.admin import Admin
from maxq.client.client_config import ClientConfig
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import MaxQError
from maxq.machine import system_environment
from maxq.protocol.body.topic_config import TopicConfig
from tests.integration.processes.dledger_cluster import MEMBERS, Cluster, Member, namespaces
from tests.integration.processes.fault_proxy import FaultProxy
from tests.integration.processes.namespaces import Namespaces
from tests.integration.torture.replication_torture import (
    TOPICS,
    Acknowledged,
    Fault,
    ReplicationTorture,
    options_of,
    run_rounds,
)
from tests.mounted_disk import NotAllowedError

_ANSWER_SECONDS = 30.0
#: No block for the log, or above diskSpaceWarningLevelRatio: cause, value, limit.
_FULL = re.compile(r"the disk is full: |the disk of .*% full, the limit")


class DLedgerTorture(ReplicationTorture):
    """What can be done to it."""

    def __init__(self, folder: Path, seed: int, network: Namespaces | None = None) -> None:
        """`network`: of namespaces, up; None: proxies."""
        self.cluster = Cluster(folder, network, has_disks=network is None)
        super().__init__(self.cluster.name_server_address, random.Random(seed))
        self.faults = self.PARTITIONS if network else (*self.LINK_FAULTS, *self.PROCESS_FAULTS, *self.disk_faults)

    @property
    def members(self) -> Sequence[Member]:
        return self.cluster.members

    @property
    def disk_faults(self) -> Sequence[Fault["DLedgerTorture"]]:
        """None where members have no disks of their own."""
        if self.cluster.why_no_disks:
            print(f"no disk is filled: {self.cluster.why_no_disks}", file=sys.stderr)
            return ()
        return self.DISK_FAULTS

    # -- what may happen; each returns when it is mended --

    async def kill_the_leader(self) -> None:
        leader = await self._leader()
        await leader.kill()
        await self.acknowledges_again()
        await leader.start()

    async def kill_a_follower(self) -> None:
        follower = await self._follower()
        await follower.kill()
        await self.acknowledges_again()
        await follower.start()

    async def kill_all(self) -> None:
        """Nobody is asked what the others have: what was acknowledged is on two disks."""
        members = self.rng.sample(self.cluster.members, 3)
        for member in members:
            await member.kill()
        for member in self.rng.sample(members, 3):
            await member.start()

    async def kill_leader_after_leader(self) -> None:
        """Each is back before the next one goes, and has yet to catch up."""
        for _ in range(3):
            leader = await self._leader()
            await leader.kill()
            await leader.start()

    async def kill_while_starting(self) -> None:
        member = self.rng.choice(self.cluster.members)
        await self.killed_while_starting(member)
        await member.start()

    async def pause_the_leader(self) -> None:
        """Pause the leader, perhaps for longer than its followers wait for it."""
        await self.paused(await self._leader(), up_to=4.0)

    async def pause_a_follower(self) -> None:
        await self.paused(await self._follower(), up_to=4.0)

    async def wake_a_leader_of_yesterday(self) -> None:
        """It sleeps until another one acknowledges, and finds sends that wait for it when it wakes up: it must not tell
        anybody that they are safe."""
        leader = await self._leader()
        leader.pause()
        try:
            await self._until_another_leads(leader)
            await self.acknowledges_again()
            reader, writer = await asyncio.open_connection(leader.host, leader.port)
            bodies = [self.rng.randbytes(100) for _ in range(10)]
            writer.writelines(_send_request(number, body) for number, body in enumerate(bodies))
            await writer.drain()
        finally:
            leader.go_on()
        try:
            for _ in bodies:
                frame = await _frame(reader)
                code, number = code_and_opaque(bytearray(frame), 0)
                if code == ResponseCode.SUCCESS:  # then it must be so
                    self.senders.new.append(_acknowledged(frame, bodies[number]))
        finally:
            writer.close()

    async def nobody_reaches_the_leader(self) -> None:
        """It reaches them."""
        await self._with_link([await self._leader()], FaultProxy.cut)

    async def the_leader_reaches_nobody(self) -> None:
        leader = await self._leader()
        await self._with_link([member for member in self.cluster.members if member is not leader], FaultProxy.stall)

    async def nobody_reaches_a_follower(self) -> None:
        """It stands for election all the time, and must not disturb the others."""
        await self._with_link([await self._follower()], FaultProxy.stall, up_to=4.0)

    async def reset_all_links(self) -> None:
        for _ in range(3):
            for member in self.cluster.members:
                member.link.reset()
            await self.pause(up_to=0.3)

    async def a_follower_lags(self) -> None:
        await self._with_link([await self._follower()], lambda link: link.slow(100_000), up_to=3.0)

    async def hand_over(self) -> None:
        for _ in range(2):
            leader = await self._leader()
            to = self.rng.choice([member for member in self.cluster.members if member is not leader])
            with contextlib.suppress(MaxQError):  # it lags too far behind, say
                await self.cluster.client.transfer(to.name)
            await self.acknowledges_again()

    async def empty_a_follower(self) -> None:
        """A new disk: it gets the whole log."""
        follower = await self._follower()
        await follower.kill()
        await self.acknowledges_again()
        shutil.rmtree(follower.store)
        await follower.start()

    async def _with_link(
        self, members: Sequence[Member], fault: Callable[[FaultProxy], None], *, up_to: float = 3.0
    ) -> None:
        links = [member.link for member in members if member.link is not None]
        for link in links:
            fault(link)
        await self.pause(up_to=up_to)
        for link in links:
            link.mend()

    # -- disks --

    async def fill_the_leaders_disk(self) -> None:
        """It hands over to a member with room, and goes on as soon as there is some again."""
        leader = await self._leader()
        with self._filled(leader):
            await self._until_another_leads(leader)
            await self.acknowledges_again()
            leader.check_alive()
            said = leader.log_text()
            is_said = _FULL.search(said) is not None and "the leadership is offered to" in said
            self.claim(is_said, f"it did not say why: {leader.said()}")

    async def fill_a_followers_disk(self) -> None:
        """The others are a majority."""
        follower = await self._follower()
        with self._filled(follower):
            for _ in range(10):  # more than its files' blocks take
                await self.acknowledges_again()
            follower.check_alive()

    async def fill_all_disks(self) -> None:
        """Nothing is taken, with a reason, until there is room."""
        self.senders.reasons.clear()
        with contextlib.ExitStack() as filled:
            for member in self.members:
                filled.enter_context(self._filled(member))
            await self.until(lambda: any(map(_FULL.search, self.senders.reasons)), "no refusal says why")
            await self.pause(up_to=3.0)
            for member in self.members:
                member.check_alive()

    async def kill_on_a_full_disk(self) -> None:
        """It starts again before there is room."""
        leader = await self._leader()
        with self._filled(leader):
            await self._until_another_leads(leader)
            await leader.kill()
            await self.acknowledges_again()
            await leader.start()
            await self.acknowledges_again()
            leader.check_alive()

    @contextlib.contextmanager
    def _filled(self, member: Member) -> Iterator[None]:
        assert member.disk is not None, "see disk_faults"
        member.disk.fill()
        try:
            yield
        finally:
            member.disk.free()

    # -- a network that loses packets by pairs --

    async def the_leader_alone(self) -> None:
        leader = await self._leader()
        await self._partitioned(leader, both_ways(leader.name, self._others(leader)))

    async def the_leader_hears_nobody(self) -> None:
        """Cut off all that the leader would hear, while the others still hear it, until it notices."""
        leader = await self._leader()
        await self._partitioned(leader, [(other, leader.name) for other in self._others(leader)])

    async def nobody_hears_the_leader(self) -> None:
        leader = await self._leader()
        await self._partitioned(leader, [(leader.name, other) for other in self._others(leader)])

    async def a_follower_alone(self) -> None:
        follower = await self._follower()
        await self._partitioned(None, both_ways(follower.name, self._others(follower)))

    async def a_follower_hears_nobody(self) -> None:
        """The others hear that it wants to be elected."""
        follower = await self._follower()
        await self._partitioned(None, [(other, follower.name) for other in self._others(follower)])

    async def a_chain(self) -> None:
        """Leader and one follower cannot speak; both speak with the other one."""
        leader = await self._leader()
        await self._partitioned(None, both_ways(leader.name, self._others(leader)[:1]))

    async def a_ring(self) -> None:
        """Each hears one of the others only, and that one does not hear it."""
        first, second, third = self.rng.sample(MEMBERS, 3)
        network = self._network
        for sender, receiver in ((first, second), (second, third), (third, first)):
            network.lose(sender, receiver)
        await self.pause(up_to=4.0)
        network.mend()

    async def all_apart(self) -> None:
        for sender, receiver in itertools.permutations(MEMBERS, 2):
            self._network.lose(sender, receiver)
        await self.pause(up_to=4.0)
        self._network.mend()

    async def _partitioned(self, loser: Member | None, lost: Sequence[tuple[str, str]]) -> None:
        """A majority can go on meanwhile, under another leader than `loser`."""
        for sender, receiver in lost:
            self._network.lose(sender, receiver)
        if loser is not None:
            await self._until_another_leads(loser)
        await self.acknowledges_again()
        await self.pause(up_to=2.0)
        self._network.mend()

    def _others(self, member: Member) -> list[str]:
        others = [other.name for other in self.members if other is not member]
        self.rng.shuffle(others)
        return others

    @property
    def _network(self) -> Namespaces:
        assert self.cluster.network is not None, "see PARTITIONS"
        return self.cluster.network

    PROCESS_FAULTS = (
        kill_the_leader, kill_a_follower, kill_all, kill_leader_after_leader, kill_while_starting, pause_the_leader,
        pause_a_follower, wake_a_leader_of_yesterday, hand_over, empty_a_follower,
    )  # fmt: skip
    LINK_FAULTS = (
        nobody_reaches_the_leader, the_leader_reaches_nobody, nobody_reaches_a_follower, reset_all_links,
        a_follower_lags,
    )  # fmt: skip
    DISK_FAULTS = (fill_the_leaders_disk, fill_a_followers_disk, fill_all_disks, kill_on_a_full_disk)
    PARTITIONS = (
        the_leader_alone, the_leader_hears_nobody, nobody_hears_the_leader, a_follower_alone, a_follower_hears_nobody,
        a_chain, a_ring, all_apart,
    )  # fmt: skip

    # -- who is what --

    async def _leader(self) -> Member:
        found: list[Member] = []

        async def leads() -> bool:
            leader = await self.cluster.leader()
            found.extend([] if leader is None else [leader])
            return bool(found)

        await self.until(leads, "nobody leads")
        return found[0]

    async def _until_another_leads(self, but: Member) -> None:
        async def another() -> bool:
            return await self.cluster.leader() not in (None, but)

        await self.until(another, f"{but.name} goes on leading")

    async def _follower(self) -> Member:
        leader = await self._leader()
        return self.rng.choice([member for member in self.cluster.members if member is not leader])

    # -- rounds --

    async def begin(self) -> None:
        await self.cluster.start()
        async with Admin(ClientConfig(namesrv_addr=self.cluster.name_server_address), system_environment()) as admin:

            async def created() -> bool:
                try:
                    for master in await admin.brokers.masters_of_cluster("TortureCluster"):
                        for topic in TOPICS:
                            await admin.topics.create(master, TopicConfig(topic, 4, 4))
                        return True
                except MaxQError:
                    pass  # not elected yet
                return False

            await self.until(created, "no master takes the topics")

    async def end(self) -> None:
        await self.cluster.end()

    async def state(self) -> Iterable[str]:
        said = [f"{member.name}: {await self.cluster.status(member)}" for member in self.members]
        return [*said, *await super().state()]

    def look(self) -> None:
        self._look_for(self.senders.new)

    async def finish(self) -> None:
        for member in self.members:
            await member.stop()
        self._look_for(self.acknowledged)
        leaders = self.cluster.leaders_by_term()
        self.claim(len(leaders) > 0, "nobody said that he leads")
        self.claim(all(len(names) == 1 for names in leaders.values()), f"two leaders of a term: {leaders}")

    async def converge(self) -> None:
        """All have the same, and know that it is committed."""

        async def same() -> bool:
            ends = set()
            for member in self.cluster.members:
                status = await self.cluster.status(member)
                ends.add((status.get("ledgerEndIndex"), status.get("ledgerEndTerm")))
                ends.add((status.get("committedIndex"), status.get("ledgerEndTerm")))
            return len(ends) == 1

        await self.until(same, "the members do not become equal")

    # -- looking --

    def _look_for(self, acknowledged: list[Acknowledged]) -> None:
        logs = {member.name: member.log() for member in self.cluster.members}
        # Members end one after the other: those that are still there may elect a leader, which begins with an entry.
        shortest = min(logs, key=lambda member: logs[member].end)
        common = logs[shortest]
        start = max(log.start for log in logs.values())
        is_deleted = any(fault.__name__ in self.happened for fault in self.DISK_FAULTS)
        for member, log in logs.items():
            self.claim(log.start == 0 or is_deleted, f"{member} begins at {log.start}, and no disk was full")
            wanted = common.since(start)
            self.claim(log.since(start)[: len(wanted)] == wanted, f"{member} has other entries than {shortest}")
            same = log.between(start, common.end) == common.between(start, common.end)
            self.claim(same, f"{member} has other bytes than {shortest}")
            self.look_in(log, member, [one for one in acknowledged if one.physical_offset >= log.start])


def both_ways(one: str, others: Sequence[str]) -> list[tuple[str, str]]:
    """What `one` says to `others`, and they to it."""
    return [(one, other) for other in others] + [(other, one) for other in others]


def _send_request(number: int, body: bytes) -> bytes:
    fields = {
        "producerGroup": "torture_direct", "topic": TOPICS[0], "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0", "bornTimestamp": "0", "flag": "0",
        "properties": "", "reconsumeTimes": "0", "unitMode": "false", "batch": "false",
    }  # fmt: skip
    return encode(number, RequestCode.SEND_MESSAGE, fields, body, binary=False)


async def _frame(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(_ANSWER_SECONDS):
        head = await reader.readexactly(4)
        return head + await reader.readexactly(int.from_bytes(head, "big"))


def _acknowledged(frame: bytes, body: bytes) -> Acknowledged:
    queue_id, queue_offset, message_id = (str(ext_field(frame, name)) for name in ("queueId", "queueOffset", "msgId"))
    place = int(message_id[16:], 16)
    return Acknowledged(TOPICS[0], int(queue_id), int(queue_offset), place, hashlib.md5(body).hexdigest())


def main() -> int:
    parser = options_of("a DLedger group")
    parser.add_argument("--partitions", type=int, default=len(DLedgerTorture.PARTITIONS))
    options = parser.parse_args()
    promise = "the logs of all members are equal, no term had two leaders"
    if options.rounds:
        run_rounds(DLedgerTorture, options.rounds, options.seed, promise)
    try:
        if options.partitions:
            with namespaces() as network:

                def made(folder: Path, seed: int) -> DLedgerTorture:
                    return DLedgerTorture(folder, seed, network)

                run_rounds(made, options.partitions, options.seed, promise)
    except NotAllowedError as error:
        print(f"no packets are lost: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
