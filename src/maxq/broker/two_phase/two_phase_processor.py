"""MaxQ's own requests for messages that a batch commits together:

30070  stage the messages of one request      ext StageMessagesRequestHeader; body: a batch body
                                              answer: ext queueOffset, by which a decision names them
30071  what is known of an application        ext application; answer: ext batch, the last one decided here, and
                                              coordinator, which decides; each absent if it is not known
30072  decide what a batch consists of        ext application, batch; body {"brokers": {name: {"runs": […]}}}
                                              answer: body, the decision that holds; ext earlierWrite, the `run`
                                              with other rows that the same start of a query has asked for
30073  deliver this broker's part             ext application, batch; body {"runs": […]}, see ledger.Run
                                              answer: ext done, lost, before; false: ask again
30074  note which broker decides              ext application, coordinator; answer: ext coordinator, the first noted
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from maxq.broker.bundles import Environment, Messages, Tables
from maxq.broker.processors.refusal import Refusal
from maxq.broker.processors.send.put_outcome import put_refusal
from maxq.broker.processors.send.send_checks import SendChecks
from maxq.broker.processors.support import RequestProcessor, refuse_if
from maxq.broker.two_phase.batch_ledger import MOST_APPLICATIONS, read_runs
from maxq.broker.two_phase.staged_record import (
    Staged,
    StageMessagesRequestHeader,
    batch_positions,
    staged_message,
)
from maxq.broker.two_phase.two_phase_service import TwoPhaseService
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RemoteProtocolError, RequestRefusedError
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection, Processor

_OF_A_WRITE: Final = ("rows", "digest", "beganMs", "query", "queryRun", "topic")
_RUN_MOST: Final = 1024  # bytes of the JSON of a run that is remembered


class TwoPhaseProcessor(RequestProcessor):
    """Handles requests 30070 to 30074, which the exactly-once sink uses."""

    def __init__(
        self, env: Environment, tables: Tables, messages: Messages, checks: SendChecks, service: TwoPhaseService
    ) -> None:
        self._settings = env.settings
        self._store = messages.store
        self._acknowledgement = messages.acknowledgement
        self._topics = tables.topics
        self._checks = checks
        self._service = service
        self._guard = env.guard
        self._writes: dict[str, tuple[int, dict[str, Any]]] = {}  # application → batch, and the run that asked first

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.MAXQ_STAGE_MESSAGES: self.stage,
            RequestCode.MAXQ_STAGED_DECISION: self.known,
            RequestCode.MAXQ_CLAIM_STAGED: self.claim,
            RequestCode.MAXQ_DECIDE_STAGED: self.decide,
            RequestCode.MAXQ_DELIVER_STAGED: self.deliver,
        }

    async def stage(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Process request 30070: stage messages. They are stored as durably as sent ones, and no consumer sees them."""
        header = StageMessagesRequestHeader.decode(request.ext)
        remark = self._acknowledgement.refusal()
        refuse_if(remark, ResponseCode.SYSTEM_ERROR)
        version_before = self._topics.data_version.counter
        config = self._checks.topic(
            header.topic, header.default_topic, connection.remote_address, header.default_topic_queue_nums, False
        )
        if isinstance(config, Refusal):
            return config.reply_to(request)
        refusal = self._checks.queue_id(config, header.queue_id, connection.remote_address)
        if refusal is not None or header.queue_id < 0:
            return (refusal or _no_queue(header.queue_id)).reply_to(request)
        count = len(batch_positions(request.body_bytes)) - 1
        if count != header.count or count == 0:
            remark = f"the request says {header.count} messages, its body has {count}; send at least one"
            raise RequestRefusedError(ResponseCode.MESSAGE_ILLEGAL, remark)
        refusal = self._checks.staged(config, request.body_bytes, count, is_plain=header.plain)
        if refusal is not None:
            return refusal.reply_to(request)
        result = self._store.put_message(staged_message(header, request.body_bytes, connection.remote_host))
        if not result.ok:
            return put_refusal(result, self._settings.store).reply_to(request)
        outcome = self._acknowledgement.outcome(result.end_offset)
        reply = request.reply(ext={"queueOffset": str(result.queue_offset)})
        if outcome is not None:
            reply.code = await outcome
        if self._topics.data_version.counter != version_before:
            await self._topics.published()
        return reply

    async def known(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle request 30071: the state of an application."""
        found = await self._service.application(HeaderFields(request.ext).required_str("application"))
        ext = {} if found.batch is None else {"batch": str(found.batch)}
        if found.coordinator:
            ext["coordinator"] = found.coordinator
        if found.delivery is not None:
            ext["delivered"] = str(found.delivery.batch)
        return request.reply(ext=ext)

    async def claim(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Note which broker decides on the batches of an application, unless one is noted: answer request 30074."""
        fields = HeaderFields(request.ext)
        coordinator = fields.required_str("coordinator")
        if not coordinator:
            raise RemoteProtocolError("coordinator is empty: name a broker")
        noted = await self._service.claim(fields.required_str("application"), coordinator)
        return request.reply(ext={"coordinator": noted})

    async def decide(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle request 30072: decide which attempt counts."""
        fields = HeaderFields(request.ext)
        decision = _json(request)
        brokers = decision.get("brokers")
        if not isinstance(brokers, dict) or not all(isinstance(part, dict) for part in brokers.values()):
            raise RemoteProtocolError('a decision is {"brokers": {name: {"runs": […]}}}')
        for part in brokers.values():
            read_runs(part.get("runs"))
        name, batch = fields.required_str("application"), fields.required_long("batch")
        found = await self._service.decide(name, batch, decision)
        earlier = self._earlier_write(name, batch, decision.get("run"))
        ext = {} if earlier is None else {"earlierWrite": json.dumps(earlier)}
        return request.reply(ext=ext, body=json.dumps(found).encode())

    def _earlier_write(self, name: str, batch: int, run: Any) -> dict[str, Any] | None:
        """Return the run that the same start of a streaming query has asked for before, if it has other rows; None if
        there is none. A broker that was started meanwhile does not know it."""
        if not isinstance(run, dict) or not (run.get("queryRun") and run.get("digest")):
            return None
        run = {key: run.get(key) for key in _OF_A_WRITE}
        if len(json.dumps(run)) > _RUN_MOST:
            return None
        known_batch, known = self._writes.get(name, (-1, run))
        if known_batch == batch and known["queryRun"] == run["queryRun"]:
            return known if any(known.get(key) != run.get(key) for key in ("digest", "rows", "topic")) else None
        if len(self._writes) >= MOST_APPLICATIONS:
            self._writes.clear()
        self._writes[name] = batch, run
        return None

    async def deliver(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Process request 30073. The delivery is authorized as if the messages were staged now, because permissions may
        have been revoked since."""
        fields = HeaderFields(request.ext)
        runs = _json(request).get("runs")
        read_runs(runs)
        application, batch = fields.required_str("application"), fields.required_long("batch")

        def check(staged: Staged) -> None:
            does = RemotingCommand(RequestCode.MAXQ_STAGE_MESSAGES, {"topic": staged.topic}, staged.body)
            refused = None if self._guard is None else self._guard.implied(connection, request, does)
            if refused is not None:
                remark = f"staged messages for {staged.topic} are not delivered: {refused.remark}"
                raise RequestRefusedError(ResponseCode.NO_PERMISSION, remark)

        found = await self._service.deliver(application, batch, runs, check)
        answers = {"done": found.done, "before": found.before}
        ext = {name: "true" if value else "false" for name, value in answers.items()}
        return request.reply(ext=ext | {"lost": str(found.lost)})


def _json(request: RemotingCommand) -> dict[str, Any]:
    try:
        found = json.loads(request.body_bytes)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RemoteProtocolError("the body is no JSON object")
    return found


def _no_queue(queue_id: int) -> Refusal:
    return Refusal(ResponseCode.INVALID_PARAMETER, f"queueId {queue_id}: staged messages need a queue, 0 or above")
