"""What services know of gRPC: their methods, and the calls of them.

A call is answered on the loop, at any time after it was handed over; nothing of it is a task or a future. Everything
that calls are answered during one arrival, or one turn of the loop, leaves in one write for each connection.
"""

from maxq.remoting.grpc.call_cy import Call, Streaming, Unary
from maxq.remoting.grpc.status import GrpcStatus

__all__ = ["Call", "GrpcStatus", "Streaming", "Unary"]
