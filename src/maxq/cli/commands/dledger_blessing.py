"""May an operator declare a member complete that has forgotten something? And what does that mean?"""

import asyncio
from dataclasses import dataclass
from pathlib import PurePath

from maxq.client.instance.dledger_client import DLedgerClient
from maxq.errors import ConfigError, MaxQError
from maxq.machine import system_environment
from maxq.runtime.files.system import SystemDisk
from maxq.store.dledger.blessing import Remains, StoppedMember


@dataclass(frozen=True, slots=True)
class Other:
    """Another member of the group, as it answered just now.

    Attributes:
        is_lost: nobody can ask it: the operator says that its store is gone.
        amnesiac_until: it has forgotten something itself; -1: it has all it promised.
        end_index, end_term, term: -1: unknown.
    """

    member: str
    is_lost: bool = False
    amnesiac_until: int = -1
    end_index: int = -1
    end_term: int = -1
    term: int = -1

    @property
    def has_state(self) -> bool:
        """Return whether the member can tell its state."""
        return not self.is_lost and self.amnesiac_until < 0

    def line(self) -> str:
        if self.is_lost:
            return f"{self.member}: lost, as --lost says"
        what = f"entries up to {self.end_index} of term {self.end_term}"
        return f"{self.member}: {what}" + ("" if self.has_state else ", and has lost entries, too")


@dataclass(frozen=True, slots=True)
class Blessing:
    """The declaration of one member as complete, in the state that it and the others are in.

    Attributes:
        members: of the group.
    """

    member: str
    members: int
    own: Remains
    others: tuple[Other, ...]

    def refusal(self) -> str:
        """Returns why the command is refused; empty if it is allowed."""
        own, quorum = self.own, self.members // 2 + 1
        if not own.is_amnesiac:
            return f"{self.member} has lost nothing that it knows of: start it"
        healthy = [other.member for other in self.others if other.has_state]
        if len(healthy) >= quorum:
            names = ", ".join(healthy)
            return (
                f"{len(healthy)} of {self.members} members have all entries that they acknowledged ({names}), a "
                f"majority is {quorum}: start {self.member}, it copies the lost entries from them"
            )
        for other in self.others:
            more = (other.end_term, other.end_index) > (own.end_term, own.end_index)
            if not other.is_lost and not other.has_state and more:
                return (
                    f"{other.member} has lost entries, too, and has more left: entries up to {other.end_index} "
                    f"of term {other.end_term}, {self.member} up to {own.end_index} of term {own.end_term}; bless "
                    f"{other.member} first"
                )
        return ""

    @property
    def term(self) -> int:
        """Return a term in which the member cannot have voted."""
        return max([self.own.term, self.own.end_term, *(other.term for other in self.others)]) + 1

    def lines(self) -> list[str]:
        """Returns lines that explain what the command will do."""
        own = self.own
        left = f"entries up to {own.end_index} of term {own.end_term}" if own.end_index >= 0 else "no entry"
        had = f"; it had some up to {own.lost_until}" if own.lost_until > own.end_index else ""
        vote = "; its vote is lost" if own.term < own.end_term else ""
        return [
            f"{self.member} has {left}{had}{vote}",
            *(other.line() for other in self.others),
            f"It will count as complete from its next start on, and vote from term {self.term} on. Entries that were "
            f"acknowledged after entry {own.end_index} and are on no other member are given up for good.",
        ]


def blessing_of(
    stopped: StoppedMember, member: str, group: str, peers: dict[str, str], lost: frozenset[str]
) -> Blessing:
    """Read the member's files, ask all others.

    Args:
        peers: id → address of all members.
        lost: ids of members that cannot be asked because their stores are gone.

    Raises:
        ConfigError: a member is named that there is not, or one cannot be asked.
        StoreRefusedError: the member's files cannot be read.
    """
    strangers = sorted(lost - (peers.keys() - {member}))
    if strangers or member not in peers:
        raise ConfigError(f"{', '.join(strangers) or member}: group {group} has the members {', '.join(peers)}")
    others = asyncio.run(_ask(group, {peer: at for peer, at in peers.items() if peer != member}, lost))
    return Blessing(member, len(peers), stopped.remains(), tuple(others))


async def _ask(group: str, peers: dict[str, str], lost: frozenset[str]) -> list[Other]:
    environment = system_environment()
    client = DLedgerClient(group, peers, clock=environment.clock, rng=environment.rng)
    try:
        return [Other(peer, is_lost=True) if peer in lost else await _other(client, peer) for peer in peers]
    finally:
        await client.close()


async def _other(client: DLedgerClient, peer: str) -> Other:
    try:
        status = (await client.metadata(peer)).status or {}
    except MaxQError as error:
        raise ConfigError(
            f"{peer} does not report its entries ({error}): start it, or, if its store is lost, give --lost {peer}"
        ) from None
    names = ("amnesiacUntil", "ledgerEndIndex", "ledgerEndTerm", "term")
    amnesiac_until, end_index, end_term, term = (int(status.get(name, -1)) for name in names)
    return Other(peer, False, amnesiac_until, end_index, end_term, term)


def stopped_member(base_dir: PurePath, member: str) -> StoppedMember:
    """Return a stopped member's files on the real disk."""
    return StoppedMember(SystemDisk(), base_dir, member)
