"""AuthAdmin: users and policies shown and changed (3001 to 3010).

Only one whom no rule binds may make or change another such user. A password is told only to such a user, and only where
requests are signed: the commands that copy users need it, nobody else does.

Source:
    broker/processor/AdminBrokerProcessor.java (createUser … listAcl).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from maxq.access.table_file import TableFile
from maxq.auth.info import AclInfo, UserInfo
from maxq.auth.policy import PolicyType
from maxq.auth.resource import Resource
from maxq.auth.tables import AccessTables
from maxq.auth.user import User, UserStatus, UserType
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import RemoteProtocolError, RequestRefusedError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.protocol.json.json_body import JsonBody
from maxq.remoting.connection import Connection, Processor

_B = TypeVar("_B", bound=JsonBody)
_V = TypeVar("_V")

_ONLY_SUPER: Final = "The super user can only be {} by super user"


class AuthAdmin:
    """The ten requests of one server about users and policies.

    Args:
        is_super: does a request come from one whom no rule binds? None: requests are not signed, so nobody knows.
    """

    def __init__(
        self, tables: AccessTables, file: TableFile, is_super: Callable[[RemotingCommand], bool] | None
    ) -> None:
        self._tables = tables
        self._file = file
        self._is_super = is_super

    def routes(self) -> Mapping[int, Processor]:
        """Return the handler of each request code that changes or lists users and policies (ACL 2.0)."""
        return {
            RequestCode.AUTH_CREATE_USER: self.create_user,
            RequestCode.AUTH_UPDATE_USER: self.update_user,
            RequestCode.AUTH_DELETE_USER: self.delete_user,
            RequestCode.AUTH_GET_USER: self.get_user,
            RequestCode.AUTH_LIST_USER: self.list_users,
            RequestCode.AUTH_CREATE_ACL: self.update_acl,
            RequestCode.AUTH_UPDATE_ACL: self.update_acl,
            RequestCode.AUTH_DELETE_ACL: self.delete_acl,
            RequestCode.AUTH_GET_ACL: self.get_acl,
            RequestCode.AUTH_LIST_ACL: self.list_acls,
        }

    # --- users --------------------------------------------------------------------------------------------------------

    async def create_user(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer AUTH_CREATE_USER (3001). Without a type the user is a normal one."""
        username, info = _name(request), _body(UserInfo, request)
        user_type, status = _user_type(info), _user_status(info)
        if user_type is UserType.SUPER and self._binds(request):
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, _ONLY_SUPER.format("create"))
        user = User(username, info.password or "", user_type or UserType.NORMAL, status or UserStatus.ENABLE)
        self._tables.create_user(user)
        await self._file.save()
        return request.reply()

    async def update_user(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer AUTH_UPDATE_USER (3002): change the fields that the body has."""
        username, info = _name(request), _body(UserInfo, request)
        user_type, status = _user_type(info), _user_status(info)
        if user_type is UserType.SUPER and self._binds(request):
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, _ONLY_SUPER.format("update"))
        self._check_not_super(username, request)
        self._tables.update_user(username, info.password, user_type, status)
        await self._file.save()
        return request.reply()

    async def delete_user(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer AUTH_DELETE_USER (3003): delete a user and its policies. Deleting an unknown user succeeds."""
        username = _name(request)
        if username in self._tables.users:
            self._check_not_super(username, request)
            self._tables.delete_user(username)
            await self._file.save()
        return request.reply()

    def get_user(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer AUTH_GET_USER (3004). An answer without body means that there is no such user."""
        user = self._tables.users.get(_name(request))
        if user is None:
            return request.reply()
        return request.reply(body=UserInfo.of(user, with_password=self._may_read_passwords(request)).encode())

    def list_users(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer AUTH_LIST_USER (3005) with the users whose name contains `filter`."""
        found = self._tables.list_users(request.ext.get("filter"))
        with_password = self._may_read_passwords(request)
        return _list_reply(request, [UserInfo.of(user, with_password=with_password) for user in found])

    def _check_not_super(self, username: str, request: RemotingCommand) -> None:
        user = self._tables.users.get(username)
        if user is not None and user.is_super and self._binds(request):
            raise RequestRefusedError(ResponseCode.NO_PERMISSION, _ONLY_SUPER.format("update"))

    def _binds(self, request: RemotingCommand) -> bool:
        """Return whether access rules apply to the sender. They do not where requests are unsigned: every sender is
        unknown there and may do everything."""
        return self._is_super is not None and not self._is_super(request)

    def _may_read_passwords(self, request: RemotingCommand) -> bool:
        return self._is_super is not None and self._is_super(request)

    # --- policies -----------------------------------------------------------------------------------------------------

    async def update_acl(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle requests 3006 and 3007: add entries, which replace those for the same resource."""
        info = _body(AclInfo, request)
        if not info.policies:
            raise RequestRefusedError(ResponseCode.SYSTEM_ERROR, "The body of acl is null")
        acl = _readable(lambda: info.acl(info.subject or request.ext.get("subject", "")))
        self._tables.update_acl(acl.subject, acl.policies)
        await self._file.save()
        return request.reply()

    async def delete_acl(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer AUTH_DELETE_ACL (3008). Without a resource all entries are deleted."""
        ext = request.ext
        text = ext.get("resource", "").strip()
        resource = Resource.parse(text) if text else None
        # Java ignores a resource that it cannot read, and deletes all policies of the subject
        if text and resource is None:
            raise RequestRefusedError(
                ResponseCode.INVALID_PARAMETER, f"{text!r:.100} is no resource; nothing was deleted"
            )
        self._tables.delete_acl(ext.get("subject", ""), PolicyType.of(ext.get("policyType")), resource)
        await self._file.save()
        return request.reply()

    def get_acl(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer AUTH_GET_ACL (3009). An answer without body means that the user has no policies."""
        acl = self._tables.get_acl(request.ext.get("subject", ""))
        return request.reply() if acl is None else request.reply(body=AclInfo.of(acl).encode())

    def list_acls(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer AUTH_LIST_ACL (3010). Filters are texts that subject and resource must contain."""
        found = self._tables.list_acls(request.ext.get("subjectFilter"), request.ext.get("resourceFilter"))
        return _list_reply(request, [AclInfo.of(acl) for acl in found])


def _name(request: RemotingCommand) -> str:
    name = request.ext.get("username", "")
    if not name.strip():
        raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, "The username is blank")
    return name


def _user_type(info: UserInfo) -> UserType | None:
    found = UserType.of(info.user_type)
    if found is None and info.user_type:
        raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, f"{info.user_type!r:.60} is neither Super nor Normal")
    return found


def _user_status(info: UserInfo) -> UserStatus | None:
    found = UserStatus.of(info.user_status)
    if found is None and info.user_status:
        raise RequestRefusedError(
            ResponseCode.INVALID_PARAMETER, f"{info.user_status!r:.60} is neither enable nor disable"
        )
    return found


def _body(kind: type[_B], request: RemotingCommand) -> _B:
    return _readable(lambda: kind.decode(request.body_bytes))


def _readable(read: Callable[[], _V]) -> _V:
    try:
        return read()
    except RemoteProtocolError as error:
        raise RequestRefusedError(ResponseCode.INVALID_PARAMETER, str(error)) from None


def _list_reply(request: RemotingCommand, rows: Sequence[JsonBody]) -> RemotingCommand:
    return request.reply(body=json_dialect.dumps([row.to_json() for row in rows]) if rows else None)
