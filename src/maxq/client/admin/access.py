"""Users and policies of ACL 2.0 on a broker or name server; each server has its own.

Source: apache/rocketmq tools/admin/DefaultMQAdminExtImpl.java (createUser … listAcl).
"""

from collections.abc import Sequence

from maxq.auth.info import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from maxq.client.admin.context import AdminContext
from maxq.client.instance.client_api import fields
from maxq.codes import RequestCode
from maxq.protocol.json import json_dialect


class AccessAdmin:
    """Manages users and rules of access; the attribute `access` of an Admin. `address` is host:port of a server."""

    def __init__(self, context: AdminContext) -> None:
        self._api = context.api

    # --- users --------------------------------------------------------------------------------------------------------

    async def create_user(self, address: str, user: UserInfo) -> None:
        """Create a user of access control on one broker, by request 3001 (AUTH_CREATE_USER)."""
        await self._call(RequestCode.AUTH_CREATE_USER, address, {"username": user.username or ""}, user.encode())

    async def update_user(self, address: str, user: UserInfo) -> None:
        """Change the given fields of a user (3002)."""
        await self._call(RequestCode.AUTH_UPDATE_USER, address, {"username": user.username or ""}, user.encode())

    async def delete_user(self, address: str, username: str) -> None:
        """Delete a user and its policies on one broker (3003)."""
        await self._call(RequestCode.AUTH_DELETE_USER, address, {"username": username})

    async def get_user(self, address: str, username: str) -> UserInfo | None:
        """Return a user (3004); None if there is none. Only super users are told the password."""
        body = await self._call(RequestCode.AUTH_GET_USER, address, {"username": username})
        return UserInfo.decode(body) if body else None

    async def list_users(self, address: str, text: str | None = None) -> list[UserInfo]:
        """Return the users whose name contains the text (3005)."""
        body = await self._call(RequestCode.AUTH_LIST_USER, address, fields(filter=text))
        return [UserInfo.from_json(row) for row in json_dialect.loads(body)] if body else []

    async def copy_users(self, source: str, target: str, usernames: Sequence[str] = ()) -> list[str]:
        """Create or change the users on the target as they are on the source; all users if none is named. Returns their
        names."""
        if usernames:
            users = [user for name in usernames if (user := await self.get_user(source, name)) is not None]
        else:
            users = await self.list_users(source)
        for user in users:
            if await self.get_user(target, user.username or "") is None:
                await self.create_user(target, user)
            else:
                await self.update_user(target, user)
        return [user.username or "" for user in users]

    # --- policies -----------------------------------------------------------------------------------------------------

    async def create_acl(self, address: str, acl: AclInfo) -> None:
        """Add entries to the policies of a subject (3006)."""
        await self._call(RequestCode.AUTH_CREATE_ACL, address, {"subject": acl.subject or ""}, acl.encode())

    async def update_acl(self, address: str, acl: AclInfo) -> None:
        """Change the policies of a subject (a user) on one broker (3007)."""
        await self._call(RequestCode.AUTH_UPDATE_ACL, address, {"subject": acl.subject or ""}, acl.encode())

    async def delete_acl(self, address: str, subject: str, resource: str | None = None) -> None:
        """Delete the entry for a resource, or all policies of the subject (3008)."""
        await self._call(RequestCode.AUTH_DELETE_ACL, address, fields(subject=subject, resource=resource))

    async def get_acl(self, address: str, subject: str) -> AclInfo | None:
        """Return the policies of a subject (3009); None if it has none."""
        body = await self._call(RequestCode.AUTH_GET_ACL, address, {"subject": subject})
        return AclInfo.decode(body) if body else None

    async def list_acls(self, address: str, subject: str | None = None, resource: str | None = None) -> list[AclInfo]:
        """Return the policies of subjects, and for resources, that contain these texts (3010)."""
        ext = fields(subjectFilter=subject, resourceFilter=resource)
        body = await self._call(RequestCode.AUTH_LIST_ACL, address, ext)
        return [AclInfo.from_json(row) for row in json_dialect.loads(body)] if body else []

    async def copy_acls(self, source: str, target: str, subjects: Sequence[str] = ()) -> list[str]:
        """Give subjects on the target the policies they have on the source; all subjects if none is named. Returns the
        subjects."""
        if subjects:
            acls = [acl for subject in subjects if (acl := await self.get_acl(source, subject)) is not None]
        else:
            acls = await self.list_acls(source)
        for acl in acls:
            await self.update_acl(target, acl)
        return [acl.subject or "" for acl in acls]

    async def _call(self, code: RequestCode, address: str, ext: dict[str, str], body: bytes | None = None) -> bytes:
        return (await self._api.call(address, code, ext, body)).body_bytes


def custom_acl(
    subject: str,
    resources: Sequence[str],
    actions: Sequence[str],
    source_ips: Sequence[str],
    decision: str,
) -> AclInfo:
    """Make one entry for each resource, all with the same rules."""
    entries = [PolicyEntryInfo(resource, list(actions), list(source_ips) or None, decision) for resource in resources]
    return AclInfo(subject, [PolicyInfo("Custom", entries)])
