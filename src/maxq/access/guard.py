"""Guard: stands before all processors of a server and lets through what its judge allows.

The batch paths of sends and pulls ask the session of a connection (`session`) instead, which has what the judge allowed
on it before; whatever is not in there comes here.
"""

from typing import Final, NamedTuple, cast

from maxq.access.audit import Audit
from maxq.auth.judge import Judge, Refused, Session
from maxq.auth.needs import need_of_record
from maxq.auth.signature import ACCESS_KEY
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection
from maxq.runtime.interfaces import Clock

_SESSION: Final = "access session"
_HEART_BEAT: Final = "access heart-beat"


class _Refusal(RemotingCommand):
    """An answer by which the guard refuses, also when a processor called the guard."""

    __slots__ = ()


class _HeartBeat(NamedTuple):
    """The last heartbeat of a connection: its signer, and the rules by which it was allowed."""

    signed: RemotingCommand
    rules: object


class Guard:
    """Decides about every request before its processor; `RemotingServer.guard` of a server with access control."""

    def __init__(self, judge: Judge, clock: Clock) -> None:
        self._judge = judge
        self.audit = Audit(clock)

    def __call__(self, connection: Connection, command: RemotingCommand) -> RemotingCommand | None:
        """Judge a request. Returns the refusal, or None to allow it."""
        session = self.session(connection)
        refused = self._judge.judge(command, session)
        if refused is not None:
            return self._refuse(connection, command, refused, session)
        if command.code == RequestCode.HEART_BEAT:
            key = command.ext.get(ACCESS_KEY, "")
            signed = RemotingCommand(command.code, {ACCESS_KEY: key})
            connection.attributes[_HEART_BEAT] = _HeartBeat(signed, self.rules)
        return None

    def outcome(self, connection: Connection, command: RemotingCommand, response: RemotingCommand | None) -> None:
        """Record the outcome of an allowed request; `RemotingServer.on_outcome`."""
        if not isinstance(response, _Refusal):  # a refusal was written to the audit log when it was made
            self.audit.note_outcome(connection, command, response)

    def also(self, connection: Connection, command: RemotingCommand, sent_to: str) -> RemotingCommand | None:
        """Return the refusal of an accepted request that turned out to concern a record of this topic; None if the
        client may continue. Called by processors."""
        session = self.session(connection)
        refused = self._judge.judge_also(command, session, need_of_record(command.code, sent_to))
        return None if refused is None else self._refuse(connection, command, refused, session)

    def implied(
        self, connection: Connection, command: RemotingCommand, does: RemotingCommand
    ) -> RemotingCommand | None:
        """Return the refusal of an accepted request that turned out to have the effect of the request `does`; None if
        its sender may make that request, too. Called by processors."""
        session = self.session(connection)
        asked = RemotingCommand(does.code, {**does.ext, ACCESS_KEY: command.ext.get(ACCESS_KEY, "")}, does.body)
        refused = self._judge.judge_again(asked, session, self.rules)
        return None if refused is None else self._refuse(connection, command, refused, session)

    @property
    def rules(self) -> object:
        """Return the present rules; another object after each change."""
        return self._judge.rules

    def again(self, connection: Connection, command: RemotingCommand, since: object) -> RemotingCommand | None:
        """Return the refusal of a request that was accepted when the rules had version `since`, and then waited; None
        if it may continue."""
        if since is self.rules:
            return None
        session = self.session(connection)
        refused = self._judge.judge_again(command, session, since)
        return None if refused is None else self._refuse(connection, command, refused, session)

    def client_may(self, connection: Connection, sent_to: str) -> bool:
        """Return whether the client behind `connection` may see a half message which was sent to this topic, judged by
        the signer of its last heartbeat."""
        beat = self._heart_beat(connection)
        if beat is None or not self.client_counts(connection):
            return False
        need = need_of_record(RequestCode.HEART_BEAT, sent_to)
        return self._judge.judge_also(beat.signed, self.session(connection), need) is None

    def client_counts(self, connection: Connection) -> bool:
        """Return whether the client behind `connection` may get notices for its groups. It may not if the account that
        signed its last heartbeat was deleted, is disabled, or has another secret."""
        beat = self._heart_beat(connection)
        if beat is None or beat.rules is self.rules:
            return beat is not None
        return self._judge.judge_sender(beat.signed, self.session(connection), beat.rules) is None

    def client(self, connection: Connection) -> str:
        """Return the access key with which the last heartbeat of `connection` was signed; empty if none."""
        beat = self._heart_beat(connection)
        return "" if beat is None else beat.signed.ext[ACCESS_KEY]

    @staticmethod
    def _heart_beat(connection: Connection) -> _HeartBeat | None:
        return cast(_HeartBeat | None, connection.attributes.get(_HEART_BEAT))

    def _refuse(
        self, connection: Connection, command: RemotingCommand, refused: Refused, session: Session
    ) -> RemotingCommand:
        self.audit.note_refusal(connection, command, refused, session.source_ip)
        reply = command.reply(ResponseCode.NO_PERMISSION, refused.remark)
        return _Refusal(
            reply.code, remark=reply.remark, opaque=reply.opaque, flag=reply.flag, serialize_type=reply.serialize_type
        )

    def session(self, connection: Connection) -> Session:
        """Return the session of this connection: what it may do by the present rules."""
        rules = self._judge.rules
        session = cast(Session | None, connection.attributes.get(_SESSION))
        if session is None or session.rules is not rules:
            session = connection.attributes[_SESSION] = Session(
                connection.peer_ip, rules, is_vouched=connection.is_vouched
            )
        return session

    def identify(self, access_key: str, content: bytes, signature: bytes, source_ip: str) -> str | None:
        """Return why whoever signed `content` so is not the holder of this access key; None if they are. Called by the
        gRPC server, whose clients sign the time of their calls."""
        refused = self._judge.identify(access_key, content, signature, source_ip)
        return None if refused is None else refused.remark

    def may(self, command: RemotingCommand, source_ip: str) -> str | None:
        """Return why a client at this address, identified as who has the access key in `command`, may not ask so; None
        if it may."""
        refused = self._judge.judge(command, Session(source_ip, self.rules, is_vouched=True))
        return None if refused is None else refused.remark

    def is_super(self, command: RemotingCommand) -> bool:
        """Return whether this request, which was allowed, comes from a user to whom no rule applies."""
        return self._judge.is_super(command)
