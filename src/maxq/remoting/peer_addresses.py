"""PeerAddresses: who may connect to the ports between brokers, haListenPort and the port of a DLedger member.

Nothing on these ports is signed, so whoever may connect is taken for a broker of the group. The setting peerAddresses
lists who may; empty, as in RocketMQ, everybody.
"""

import logging
from typing import Final

from maxq.config.host import is_loopback
from maxq.remoting.addresses import address_list
from maxq.runtime.interfaces import Clock
from maxq.runtime.log_limits import LogThrottle, and_more

log: Final = logging.getLogger("maxq.remoting")


class PeerAddresses:
    """The addresses that may connect to the ports between brokers of one server.

    Attributes:
        refused: connections from other addresses, since the start.
    """

    def __init__(self, text: str, clock: Clock) -> None:
        """
        Args:
            text: the setting peerAddresses.

        Raises:
            ConfigError: it lists something else than addresses and networks.
        """
        self._text = text.strip()
        self._is_listed = address_list("peerAddresses", text)
        self._throttle = LogThrottle(clock)
        self.refused = 0

    def admits(self, address: str, port: str) -> bool:
        """Return whether a peer at this IP address may stay connected. A refusal is counted, and logged once in ten
        seconds for each address.

        Args:
            port: what the peer connected to, for the log.
        """
        if not self._text or (address and self._is_listed(address)):
            return True
        self.refused += 1
        left_out = self._throttle.admits(address)
        if left_out is not None:
            log.warning(
                "%s is disconnected from %s: peerAddresses=%.200s does not list it; add it there if it is a broker of "
                "this group, or a machine from which the group is administered%s",
                address, port, self._text, and_more(left_out),
            )  # fmt: skip
        return False

    def log_who_may_connect(self, host: str, port: str, danger: str) -> None:
        """Log at the start who may connect: a warning if other machines may and nothing limits which.

        Args:
            host: the address that is listened on.
            port: the port and its name.
            danger: what whoever connects can do.
        """
        if self._text:
            log.info("%s takes connections from %s only (peerAddresses)", port, self._text)
        elif not is_loopback(host):
            log.warning(
                "%s is open to other machines (it listens on %s) and has no access control: anyone who can reach it "
                "%s; set peerAddresses to the addresses of the group's brokers, or close the port with a firewall",
                port, host, danger,
            )  # fmt: skip
