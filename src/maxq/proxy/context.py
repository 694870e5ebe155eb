"""Context: one call, who makes it, and how it is answered.

With access control a client signs the moment of the call with its secret:

    authorization    MQv2-HMAC-SHA1 Credential=ACCESS_KEY[/REGION/SERVICE], SignedHeaders=x-mq-date-time, Signature=HEX
    x-mq-date-time   20240131T120000Z

Source:
    proxy/common/ProxyContext.java, proxy/grpc/pipeline/ContextInitPipeline.java,
    auth/authentication/builder/DefaultAuthenticationContextBuilder.java.
"""

import asyncio
import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from maxq.codes import LanguageCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.grpc import messages as pb
from maxq.proxy.clients import Client, Clients
from maxq.proxy.statuses import CallRefusedError, status_of_error
from maxq.remoting.grpc.calls import Call

CLIENT_ID: Final = "x-mq-client-id"
LANGUAGE: Final = "x-mq-language"
CLIENT_VERSION: Final = "x-mq-client-version"

_CLIENT_ID_LENGTH_MAX: Final = 255
_AUTHORIZATION: Final = "authorization"
_DATE_TIME: Final = "x-mq-date-time"
_FIELD: Final = re.compile(r"(Credential|SignedHeaders|Signature)=([^,\s]*)")
_LANGUAGES: Final[Mapping[str, LanguageCode]] = {
    **{language.name: language for language in LanguageCode},
    "GOLANG": LanguageCode.GO,
    "DOT_NET": LanguageCode.DOTNET,
}


class Context:
    """One call.

    Attributes:
        user: the access key by which the caller was identified; empty without access control.
    """

    __slots__ = ("_answer_type", "_clients", "call", "client_id", "user")

    def __init__(self, call: Call, answer_type: Any, clients: Clients, user: str) -> None:
        """`answer_type` is the class of messages with which the call is answered.

        Raises:
            CallRefusedError: CLIENT_ID_REQUIRED, or BAD_REQUEST: the id is too long.
        """
        self.call = call
        self.user = user
        self._answer_type = answer_type
        self._clients = clients
        self.client_id = call.metadata.get(CLIENT_ID, "")
        if not self.client_id.strip():
            raise CallRefusedError(pb.Code.CLIENT_ID_REQUIRED, "client id cannot be empty")
        if len(self.client_id) > _CLIENT_ID_LENGTH_MAX:
            raise CallRefusedError(
                pb.Code.BAD_REQUEST,
                f"a client id of {len(self.client_id)} characters, at most {_CLIENT_ID_LENGTH_MAX}",
            )

    @property
    def client(self) -> Client:
        """Return the client that makes the call; it is entered as one that is there.

        Raises:
            CallRefusedError: TOO_MANY_REQUESTS: its connection has brought too many clients.
        """
        found = self._clients.find(self.client_id, self.user)
        if found is None:
            metadata = self.call.metadata
            language = _LANGUAGES.get(metadata.get(LANGUAGE, "").upper(), LanguageCode.OTHER)
            found = self._clients.enter(self.client_id, self.user, self.call.connection, language)
        found.used_at = asyncio.get_running_loop().time()
        return found

    @property
    def known_client(self) -> Client | None:
        """Return the client that makes the call if it is entered."""
        return self._clients.find(self.client_id, self.user)

    @property
    def remaining_ms(self) -> int | None:
        """Return how many ms are left until the call's deadline; None: it has none."""
        deadline = self.call.deadline
        return None if deadline is None else int((deadline - asyncio.get_running_loop().time()) * 1000)

    def answer(self, message: Any) -> None:
        """Answer a call that has one answer."""
        if not self.call.is_over:
            self.call.answer(message.SerializeToString())

    def fail(self, error: Exception) -> None:
        """Answer with the status for `error`."""
        self.answer(self._answer_type(status=status_of_error(error)))

    def guarded(self, reply: Callable[..., None], *first: Any) -> Callable[..., None]:
        """Return a function that calls `reply` with `first` and its own arguments; an error of it fails the call."""

        def guarded(*arguments: Any) -> None:
            try:
                reply(*first, *arguments)
            except Exception as error:
                self.fail(error)

        return guarded


class AccessRules(Protocol):
    """Interface of a server's access control (access/guard.py). An address is an IP address."""

    def identify(self, access_key: str, content: bytes, signature: bytes, source_ip: str) -> str | None:
        """Return why whoever signed `content` so (base64) is not the holder of this access key; None if they are."""
        ...

    def may(self, command: RemotingCommand, source_ip: str) -> str | None:
        """Return why the holder of the access key in `command` may not ask so; None if they may."""
        ...


def user_of(call: Call, rules: AccessRules) -> str:
    """Return the access key of whoever makes a call. Raises CallRefusedError, UNAUTHORIZED, if that is not certain."""
    metadata = call.metadata
    fields: dict[str, str] = dict(_FIELD.findall(metadata.get(_AUTHORIZATION, "")))
    access_key = fields.get("Credential", "").partition("/")[0]
    try:
        signature = base64.b64encode(binascii.unhexlify(fields.get("Signature", "")))
    except (binascii.Error, ValueError):
        raise CallRefusedError(pb.Code.UNAUTHORIZED, "the signature in authorization is not hexadecimal") from None
    why = rules.identify(access_key, metadata.get(_DATE_TIME, "").encode(), signature, call.connection.peer_ip)
    if why is not None:
        raise CallRefusedError(pb.Code.UNAUTHORIZED, why)
    return access_key
