"""Written by `python -m tests.unit.compiled_stubs`; see popped_cy.py."""

from collections.abc import Mapping

from maxq.protocol.grpc.popped import Popped

def encode_popped(
    data: bytes | memoryview, topic: bytes, resource: bytes, starts: Mapping[str, int], head: str, tail: str
) -> list[Popped] | None: ...
def is_compiled() -> bool: ...
