"""Users and policies of ACL 2.0. Each server has its own; mqadmin's commands reach brokers, `-b` any server."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import typer

from maxq.auth.info import AclInfo, UserInfo
from maxq.auth.policy import Action
from maxq.auth.policy import Decision as Verdict
from maxq.cli.admin.command import BrokerAddr, ClusterName, addresses, command
from maxq.cli.admin.fan_out import ask_each
from maxq.cli.help_pages import CommandApp
from maxq.cli.options import server_address
from maxq.cli.terminal.report import Report
from maxq.client.admin.access import custom_acl
from maxq.client.admin.admin import Admin

app = CommandApp()

_ACTIONS = [action for action in Action if action is not Action.ANY]  # Any can be asked for, and not granted


def _known_actions(text: str) -> str:
    """Check actions, because servers ignore those that they do not know. Raises typer.BadParameter."""
    for name in _split(text):
        if Action.of(name) not in _ACTIONS:
            known = ", ".join(action.value for action in _ACTIONS)
            raise typer.BadParameter(f"{name!r} is no action: there are {known}")
    return text


def _known_decision(text: str) -> str:
    """Check a decision as `_known_actions` checks actions."""
    if Verdict.of(text) is None:
        raise typer.BadParameter(f"{text!r} is no decision: give Allow or Deny")
    return text


Username = Annotated[str, typer.Option("-u", "--username", help="User; it is the access key.")]
Subject = Annotated[str, typer.Option("-s", "--subject", help="Whose: User:name.")]
Resources = Annotated[str, typer.Option("-r", "--resources", help="Topic:name, Group:name*, Cluster:*, …; by commas.")]
Actions = Annotated[
    str,
    typer.Option(
        "-a", "--actions", callback=_known_actions, help="Pub, Sub, Create, Update, Delete, Get, List, All; by commas."
    ),
]
SourceIp = Annotated[str | None, typer.Option("-i", "--sourceIp", help="Addresses or networks; by commas.")]
Decision = Annotated[str, typer.Option("-d", "--decision", callback=_known_decision, help="Allow or Deny.")]
UserType = Annotated[str | None, typer.Option("-t", "--userType", help="Super or Normal.")]
From = Annotated[
    str, typer.Option("-f", "--fromBroker", callback=server_address, help="Server to copy from, host or host:port.")
]
To = Annotated[
    str, typer.Option("-t", "--toBroker", callback=server_address, help="Server to copy to, host or host:port.")
]

_USER_COLUMNS = {
    "username": "#UserName", "password": "#Password", "userType": "#UserType", "userStatus": "#UserStatus",
}  # fmt: skip
_ACL_COLUMNS = {
    "subject": "#Subject", "policyType": "#PolicyType", "resource": "#Resource", "actions": "#Actions",
    "sourceIps": "#SourceIp", "decision": "#Decision",
}  # fmt: skip


# --- users ------------------------------------------------------------------------------------------------------------


@command(app, "createUser")
async def create_user(
    admin: Admin,
    username: Username,
    password: Annotated[str, typer.Option("-p", "--password", help="The secret key.")],
    user_type: UserType = None,
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
) -> Report:
    """Make a user."""
    user = UserInfo(username, password, user_type)
    return await _on_each(admin, broker, cluster, lambda a: admin.access.create_user(a, user), "create user to")


@command(app, "updateUser")
async def update_user(
    admin: Admin,
    username: Username,
    password: Annotated[str | None, typer.Option("-p", "--password", help="The new secret key.")] = None,
    user_type: UserType = None,
    status: Annotated[str | None, typer.Option("-s", "--userStatus", help="enable or disable.")] = None,
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
) -> Report:
    """Change the password, type or status of a user."""
    user = UserInfo(username, password, user_type, status)
    return await _on_each(admin, broker, cluster, lambda a: admin.access.update_user(a, user), "update user to")


@command(app, "deleteUser", asks="Delete user {username} and its policies?")
async def delete_user(
    admin: Admin, username: Username, broker: BrokerAddr = None, cluster: ClusterName = None
) -> Report:
    """Delete a user and its policies."""
    return await _on_each(admin, broker, cluster, lambda a: admin.access.delete_user(a, username), "delete user to")


@command(app, "getUser")
async def get_user(admin: Admin, username: Username, broker: BrokerAddr = None, cluster: ClusterName = None) -> Report:
    """A user; its password is told to super users only."""

    async def ask(address: str) -> list[UserInfo]:
        user = await admin.access.get_user(address, username)
        return [] if user is None else [user]

    return await _users(admin, broker, cluster, ask)


@command(app, "listUser")
async def list_user(
    admin: Admin,
    text: Annotated[str | None, typer.Option("-f", "--filter", help="Part of the name.")] = None,
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
) -> Report:
    """Users."""
    return await _users(admin, broker, cluster, lambda address: admin.access.list_users(address, text))


@command(app, "copyUser")
async def copy_user(
    admin: Admin,
    source: From,
    target: To,
    usernames: Annotated[
        str | None, typer.Option("-u", "--usernames", help="Separated by commas; all if not given.")
    ] = None,
) -> Report:
    """Copy users from one server to another; with their passwords, so only super users can."""
    done = await admin.access.copy_users(source, target, _split(usernames))
    return _copied("user", done, source, target)


# --- policies ---------------------------------------------------------------------------------------------------------


def _acl_change(name: str, about: str, what: str, change: Callable[[Admin, str, AclInfo], Awaitable[None]]) -> None:
    """Make a command that changes an entry of a user's policies; `about` is its help."""

    async def run(
        admin: Admin,
        subject: Subject,
        resources: Resources,
        actions: Actions,
        decision: Decision,
        source_ip: SourceIp = None,
        broker: BrokerAddr = None,
        cluster: ClusterName = None,
    ) -> Report:
        acl = custom_acl(subject, _split(resources), _split(actions), _split(source_ip), decision)
        return await _on_each(admin, broker, cluster, lambda address: change(admin, address, acl), what)

    run.__doc__ = about
    command(app, name)(run)


_acl_change(
    "createAcl", "Allow or deny a user something.", "create acl to",
    lambda admin, address, acl: admin.access.create_acl(address, acl),
)  # fmt: skip
_acl_change(
    "updateAcl", "Change the permissions of a user.", "update acl to",
    lambda admin, address, acl: admin.access.update_acl(address, acl),
)  # fmt: skip


@command(app, "deleteAcl")
async def delete_acl(
    admin: Admin,
    subject: Subject,
    resources: Annotated[
        str | None, typer.Option("-r", "--resources", help="Separated by commas; all if not given.")
    ] = None,
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
) -> Report:
    """Delete a user's entries for resources, or all its policies."""

    async def ask(address: str) -> None:
        names: list[str | None] = [*_split(resources)]
        for resource in names or [None]:
            await admin.access.delete_acl(address, subject, resource)

    return await _on_each(admin, broker, cluster, ask, "delete acl to")


@command(app, "getAcl")
async def get_acl(admin: Admin, subject: Subject, broker: BrokerAddr = None, cluster: ClusterName = None) -> Report:
    """The policies of a user."""

    async def ask(address: str) -> list[AclInfo]:
        acl = await admin.access.get_acl(address, subject)
        return [] if acl is None else [acl]

    return await _acls(admin, broker, cluster, ask)


@command(app, "listAcl")
async def list_acl(
    admin: Admin,
    subject: Annotated[str | None, typer.Option("-s", "--subject", help="Part of the subject.")] = None,
    resource: Annotated[str | None, typer.Option("-r", "--resource", help="Part of the resource.")] = None,
    broker: BrokerAddr = None,
    cluster: ClusterName = None,
) -> Report:
    """Policies of users."""
    return await _acls(admin, broker, cluster, lambda address: admin.access.list_acls(address, subject, resource))


@command(app, "copyAcl")
async def copy_acl(
    admin: Admin,
    source: From,
    target: To,
    subjects: Annotated[
        str | None, typer.Option("-s", "--subjects", help="Separated by commas; all if not given.")
    ] = None,
) -> Report:
    """Copy policies from one server to another; the users must be there."""
    done = await admin.access.copy_acls(source, target, _split(subjects))
    return _copied("acl", done, source, target)


# --- both -------------------------------------------------------------------------------------------------------------


async def _on_each(
    admin: Admin, broker: str | None, cluster: str | None, ask: Callable[[str], Awaitable[None]], what: str
) -> Report:
    outcomes = await ask_each(await addresses(admin, broker, cluster, masters=False), ask)
    return outcomes.report(lambda address: f"{what} {address} success.")


async def _users(
    admin: Admin, broker: str | None, cluster: str | None, ask: Callable[[str], Awaitable[Sequence[UserInfo]]]
) -> Report:
    found = await ask_each(await addresses(admin, broker, cluster, masters=False), ask)
    rows = [
        (user.username, user.password or "", user.user_type, user.user_status)
        for users in found.answers.values()
        for user in users
    ]
    notes = [f"get user from {address} success." for address in found.answers]
    return Report(_USER_COLUMNS, rows, notes=notes, failures=found.failures)


async def _acls(
    admin: Admin, broker: str | None, cluster: str | None, ask: Callable[[str], Awaitable[Sequence[AclInfo]]]
) -> Report:
    found = await ask_each(await addresses(admin, broker, cluster, masters=False), ask)
    rows = [
        (
            acl.subject,
            policy.policy_type,
            entry.resource,
            ",".join(entry.actions),
            ",".join(entry.source_ips or ()),
            entry.decision,
        )
        for acls in found.answers.values()
        for acl in acls
        for policy in acl.policies
        for entry in policy.entries
    ]
    return Report(_ACL_COLUMNS, rows, failures=found.failures)


def _copied(what: str, done: Sequence[str], source: str, target: str) -> Report:
    text = "".join(f"copy {what} of {name} from {source} to {target} success.\n" for name in done)
    text = text or f"{source} has no {what} to copy.\n"
    return Report({what: f"#{what.capitalize()}"}, [(name,) for name in done], text=text)


def _split(text: str | None) -> list[str]:
    return [part.strip() for part in (text or "").split(",") if part.strip()]
