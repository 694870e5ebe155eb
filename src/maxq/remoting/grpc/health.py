"""The health service of gRPC (grpc.health.v1): load balancers and probes ask it.

Source:
    github.com/grpc/grpc, doc/health-checking.md.
"""

from collections.abc import Iterable
from typing import Final

from google.protobuf.message import DecodeError

from maxq.remoting.grpc.calls import Call, GrpcStatus, Unary
from maxq.remoting.grpc.standard_services import health_file, message_classes

HEALTH_SERVICE: Final = "grpc.health.v1.Health"

_SERVING, _NOT_SERVING, _SERVICE_UNKNOWN = 1, 2, 3


class Health:
    """Tells whether a server serves.

    Attributes:
        file: the descriptor of the service.
        methods: what a GrpcServer is given of it.
    """

    def __init__(self, services: Iterable[str]) -> None:
        """
        Args:
            services: full names of the services that may be asked for; the empty name, which stands for the server, is
                one of them.
        """
        self.file = health_file()
        self.methods = {
            f"/{HEALTH_SERVICE}/Check": Unary(self._check),
            f"/{HEALTH_SERVICE}/Watch": Unary(self._watch),
        }
        self._request, self._response = message_classes(self.file, "HealthCheckRequest", "HealthCheckResponse")
        self._services = {"", *services}
        self._is_serving = True
        self._watchers: dict[Call, None] = {}

    def stop_serving(self) -> None:
        """Say from now on that nothing is served, and tell those who watch."""
        self._is_serving = False
        for call in self._watchers:
            call.send(self._status())

    def _status(self) -> bytes:
        status: bytes = self._response(status=_SERVING if self._is_serving else _NOT_SERVING).SerializeToString()
        return status

    def _check(self, call: Call, message: bytes) -> None:
        known = self._is_known(call, message)
        if known is None:
            return
        if known:
            call.answer(self._status())
        else:
            call.finish(GrpcStatus.NOT_FOUND, "unknown service")

    def _watch(self, call: Call, message: bytes) -> None:
        """Send the status, and send it again when it changes; the stream has no end."""
        known = self._is_known(call, message)
        if known is None:
            return
        if not known:
            call.send(self._response(status=_SERVICE_UNKNOWN).SerializeToString())
            return
        self._watchers[call] = None
        call.on_end = lambda: self._watchers.pop(call, None)
        call.send(self._status())

    def _is_known(self, call: Call, message: bytes) -> bool | None:
        """Return whether the service that is asked for is known; None: the message is malformed, and the call over."""
        try:
            return self._request.FromString(message).service in self._services
        except DecodeError:
            call.finish(GrpcStatus.INTERNAL, "a message that cannot be decoded")
            return None
