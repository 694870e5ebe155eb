"""MasterLossListener: what a slave knows of its master's log ends with the process that it knew it from.

A master that loses its power says nothing, and its slaves' links to its log stand until they have been silent for long.
Another process may answer at its address long before, with another log. A slave asks that one over a new connection,
because the old one has ended; then its link to the log ends, too, and the logs are compared before any table is taken.
"""

from collections.abc import Callable

from maxq.remoting.connection import Connection


class MasterLossListener:
    """Connection listener of a slave that reconnects the replication link when the connection to the master ends."""

    def __init__(self, master_address: Callable[[], str], begin_again: Callable[[], None]) -> None:
        """
        Args:
            master_address: `host:port` of the master that tables are asked of.
            begin_again: makes the link to the master's log anew.
        """
        self._master_address = master_address
        self._begin_again = begin_again

    def on_connect(self, connection: Connection) -> None:
        """Do nothing: a new connection does not tell which broker answers there."""

    def on_close(self, connection: Connection) -> None:
        if connection.remote_address == self._master_address():
            self._begin_again()

    def on_idle(self, connection: Connection) -> None:
        """Do nothing: the connection is closed next, which calls `on_close`."""

    def on_exception(self, connection: Connection) -> None:
        """Do nothing: the connection is closed next, which calls `on_close`."""
