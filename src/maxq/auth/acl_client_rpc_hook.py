"""AclClientRPCHook: signs every request of a client, those of brokers' and name servers' own clients too.

Source: acl/common/AclClientRPCHook.java.
"""

from maxq.auth.signature import Credentials, sign
from maxq.protocol.frame.remoting_command import RemotingCommand


class AclClientRPCHook:
    """An RPC hook that signs requests. It must be the last hook of a client: what is added to a request after it is not
    signed."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        self._key = credentials.signing_key()

    def do_before_request(self, address: str, request: RemotingCommand) -> None:
        """Add access key, security token and signature."""
        sign(request.ext, request.body_bytes, self._credentials, self._key)

    def do_after_response(self, address: str, request: RemotingCommand, response: RemotingCommand | None) -> None:
        """Do nothing with an answer: servers do not sign their answers."""
