"""What clients saw, and whether one register and one list could have answered so.

The list is the log: an append's answer is its position. The register holds the last committed write; reads of it are
linearizable reads of a member. Both are checked from invocations and answers alone.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from tests.simulation.raft.sim_ledger import BrokenRuleError


@dataclass(slots=True)
class Operation:
    """One call of a client. `end`: inf while no answer came; then it may have happened or not."""

    kind: str  # "append" or "read"
    value: int  # of an append: unique; of a read: what it returned, -1: the register was never written
    start: float
    floor: int  # highest position that anybody had been told when it began
    end: float = inf
    index: int = -1  # position of an append; how far a read saw


@dataclass(slots=True)
class History:
    """All of them."""

    operations: list[Operation] = field(default_factory=list)
    acknowledged: dict[int, int] = field(default_factory=dict)  # position → value
    _told: int = -1

    def begin(self, kind: str, value: int, now: float) -> Operation:
        """A client calls."""
        operation = Operation(kind, value, now, self._told)
        self.operations.append(operation)
        return operation

    def end(self, operation: Operation, index: int, value: int, now: float) -> None:
        """It has its answer. The list: a position belongs to one value, and what began after somebody had been told a
        position stands behind it (appends) or sees it (reads)."""
        operation.end, operation.index, operation.value = now, index, value
        if operation.kind == "append":
            if self.acknowledged.setdefault(index, value) != value:
                raise BrokenRuleError(f"position {index} was given to {self.acknowledged[index]} and to {value}")
            if index <= operation.floor:
                raise BrokenRuleError(f"append at {index} began when {operation.floor} was known")
        elif index < operation.floor:
            raise BrokenRuleError(f"a read saw up to {index}, {operation.floor} was known when it began")
        self._told = max(self._told, index)

    def check_register(self) -> None:
        """Could one register have answered so?"""
        problem = register_problem(self.operations)
        if problem:
            raise BrokenRuleError(problem)


def register_problem(operations: list[Operation]) -> str:
    """Why no register with these unique writes could have answered so; empty if one could (Gibbons and Korach 1997:
    a value's zone runs from the first end to the last start of its operations; forward zones must not overlap, and no
    backward zone may lie within a forward one)."""
    writes = {operation.value: operation for operation in operations if operation.kind == "append"}
    first_end: dict[int, float] = {-1: -1.0}
    last_start: dict[int, float] = {-1: -1.0}
    for operation in operations:
        if operation.kind == "read" and operation.end < inf:
            value = operation.value
            if value >= 0 and value not in writes:
                return f"a read returned {value}, which nobody wrote"
            if value >= 0 and operation.end < writes[value].start:
                return f"a read returned {value} before it was written"
        elif operation.kind == "read" or operation.end == inf:
            continue
        value = operation.value
        first_end[value] = min(first_end.get(value, inf), operation.end)
        last_start[value] = max(last_start.get(value, -1.0), operation.start)
    for value in first_end:
        if value >= 0:
            last_start[value] = max(last_start[value], writes[value].start)
    forward = sorted((first_end[v], last_start[v], v) for v in first_end if first_end[v] < last_start[v])
    for (_, high, value), (low, _, other) in pairwise(forward):
        if low < high:
            return f"reads and writes of {value} and {other} cannot be put in one order"
    backward = sorted((last_start[v], first_end[v], v) for v in first_end if first_end[v] >= last_start[v])
    position = 0
    for low, high, value in forward:
        while position < len(backward) and backward[position][0] <= low:
            position += 1
        for start, end, other in backward[position:]:
            if start >= high:
                break
            if end < high:
                return f"{other} was written between two reads of {value}"
    return ""
