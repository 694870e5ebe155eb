"""Leadership handed over, and taken."""

from maxq.protocol.dledger.dledger_messages import DLedgerResponseCode as Code
from maxq.protocol.dledger.dledger_messages import Reply, TransferReply, TransferRequest
from maxq.replication.raft.outputs import Role
from tests.simulation.raft.java.state import JavaState


class JavaTransfer:
    """See the module."""

    def __init__(self, state: JavaState) -> None:
        self._state = state
        self._taking: tuple[object, TransferRequest, int] | None = None  # token, order, deadline

    def request(self, token: object, request: TransferRequest, now: int) -> None:
        state, code = self._state, None
        if request.transferee_id == state.id:
            if request.transfer_id != state.leader_id or request.term != state.term or self._taking:
                code = Code.INCONSISTENT_LEADER
            else:
                self._taking = (token, request, now + state.config.leadership_transfer_wait_timeout_ms)
        elif state.role is not Role.LEADER or state.transferee or request.transferee_id not in state.config.others:
            code = Code.NOT_LEADER
        else:
            self._hand_over(token, request.transferee_id or "")
        if code is not None:
            state.answer(token, TransferReply(code=code))

    def tick(self, now: int) -> None:
        """Go on with taking it."""
        if self._taking is None:
            return
        state, (token, request, deadline) = self._state, self._taking
        code = None
        if state.term > request.term:
            code = Code.SUCCESS if state.role is Role.LEADER else None
            if state.role is Role.FOLLOWER or now > deadline + 10 * state.config.max_vote_interval_ms:
                code = Code.TAKE_LEADERSHIP_FAILED
        elif state.role is Role.FOLLOWER and state.ledger.end_index >= request.take_leadership_ledger_index:
            state.to_candidate(state.term + 1)
            state.raise_at_once = True
        elif now > deadline:
            code = Code.TAKE_LEADERSHIP_FAILED
        if code is not None:
            self._taking = None
            state.answer(token, TransferReply(code=code))

    def _hand_over(self, token: object, transferee: str) -> None:
        state = self._state
        state.transferee = transferee
        order = TransferRequest(
            group="g", remote_id=transferee, leader_id=state.id, term=state.term, transfer_id=state.id,
            transferee_id=transferee, take_leadership_ledger_index=state.ledger.end_index,
        )  # fmt: skip

        def done(reply: Reply | None, _now: int) -> None:
            state.transferee = None
            code = reply.code if isinstance(reply, TransferReply) else Code.NETWORK_ERROR
            state.answer(token, TransferReply(code=code))

        state.ask(transferee, order, done)
