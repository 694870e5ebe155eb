"""Hosts that are network namespaces of this machine, joined by a bridge, whose packets can be lost by pairs.

What a broken switch or a wrong route does: packets from one host to another vanish without a word, in one direction or
both, while everybody else goes on. Needs the rights to make namespaces (root).
"""

import subprocess
from collections.abc import Sequence

from tests.mounted_disk import NotAllowedError, run_allowed

_NETWORKS = range(64, 128)  # 100.64.0.0/10 is nobody's


class Namespaces:
    """Attributes:
    outside: the address of this process among them.
    """

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = {host: number for number, host in enumerate(hosts, start=1)}
        self._network = 0
        self.outside = ""
        self._lost: set[tuple[str, str]] = set()

    def up(self) -> None:
        """Make them.

        Raises:
            NotAllowedError: not here.
        """
        for self._network in _NETWORKS:
            try:
                run_allowed(["ip", "link", "add", self._bridge, "type", "bridge"])
            except NotAllowedError as error:
                if "exists" in str(error):  # another test's
                    continue
                raise
            break
        self.outside = f"100.{self._network}.0.254"
        try:
            run_allowed(
                ["ip", "addr", "add", f"{self.outside}/24", "dev", self._bridge],
                ["ip", "link", "set", self._bridge, "up"],
            )
            for host in self._hosts:
                self._make(host)
        except NotAllowedError:
            self.down()
            raise

    def _make(self, host: str) -> None:
        space, link = self._space(host), f"{self._bridge}{self._hosts[host]}"
        inside = ["ip", "-n", space]
        run_allowed(
            ["ip", "netns", "add", space],
            ["ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space],
            ["ip", "link", "set", link, "master", self._bridge, "up"],
            [*inside, "addr", "add", f"{self.address(host)}/24", "dev", "eth0"],
            [*inside, "link", "set", "eth0", "up"],
            [*inside, "link", "set", "lo", "up"],
            [*inside, "link", "add", "void", "type", "bridge"],  # without a port
            [*inside, "link", "set", "void", "arp", "off", "up"],
        )

    def down(self) -> None:
        """No process is in them any more."""
        for host in self._hosts:
            subprocess.run(["ip", "netns", "del", self._space(host)], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self._bridge], capture_output=True, check=False)

    @property
    def _bridge(self) -> str:
        return f"maxq{self._network}"

    def _space(self, host: str) -> str:
        return f"{self._bridge}-{host}"

    def address(self, host: str) -> str:
        """Of a host."""
        return f"100.{self._network}.0.{self._hosts[host]}"

    def command(self, host: str) -> tuple[str, ...]:
        """What runs a command on it."""
        return ("ip", "netns", "exec", self._space(host))

    # -- faults --

    def lose(self, sender: str, receiver: str) -> None:
        """What `sender` sends to `receiver` vanishes until `mend`."""
        self._lost.add((sender, receiver))
        self._route("replace", sender, receiver)

    def mend(self) -> None:
        """Nothing is lost any more."""
        for sender, receiver in self._lost:
            self._route("del", sender, receiver)
        self._lost.clear()

    def _route(self, what: str, sender: str, receiver: str) -> None:
        run_allowed(["ip", "-n", self._space(sender), "route", what, f"{self.address(receiver)}/32", "dev", "void"])
