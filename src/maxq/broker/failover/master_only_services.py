"""MasterOnlyServices: what only one broker of a group may do at a time: the master, or the slave that acts as master.

Queue locks, the ownership of consumer offsets, delivery of delayed messages, the timer and transaction checks are such
services; each registers here.

Source:
    broker/BrokerController.java changeSpecialServiceStatus.
"""

import logging
from typing import Protocol

from maxq.runtime.background import count_failure

log = logging.getLogger(__name__)


class MasterOnlyService(Protocol):
    """A service that runs only on the group's active broker. No call blocks; a repeated call does nothing."""

    def start(self) -> None:
        """Start: this broker is its group's active broker from now on."""

    def stop(self) -> None:
        """Stop: another broker is active now, or this one shuts down."""


class MasterOnlyServices:
    """Starts and stops all of them together.

    Attributes:
        is_running: is this broker its group's active one? False until it is known.
    """

    def __init__(self) -> None:
        self._services: dict[str, MasterOnlyService] = {}
        self.is_running = False

    def register(self, name: str, service: MasterOnlyService) -> None:
        """Register a service, which is started at once if this broker is active."""
        assert name not in self._services, f"{name} is registered already"
        self._services[name] = service
        self._apply(name, service)

    def change(self, should_run: bool) -> None:
        """Start or stop the services as this broker becomes or ceases to be its group's active one. The failure of one
        service is logged and does not affect the others."""
        if should_run == self.is_running:
            return
        self.is_running = should_run
        log.info("master-only services %s: %s", "start" if should_run else "stop", ", ".join(self._services) or "none")
        for name, service in self._services.items():
            self._apply(name, service)

    def begin_again(self) -> None:
        """Stop and start all services, because another broker may have been active in between."""
        if self.is_running:
            self.change(False)
            self.change(True)

    def names(self) -> list[str]:
        """Names of the services that run only on the active broker of a group."""
        return list(self._services)

    def _apply(self, name: str, service: MasterOnlyService) -> None:
        try:
            if self.is_running:
                service.start()
            else:
                service.stop()
        except Exception:  # the others are still wanted
            count_failure(name)
            log.exception("master-only service %s did not %s", name, "start" if self.is_running else "stop")
