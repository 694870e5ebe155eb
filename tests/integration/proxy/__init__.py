"""Calls of gRPC clients to a broker, by grpcio: each call, its answers, its refusals."""
