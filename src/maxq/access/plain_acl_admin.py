"""PlainAclAdmin: what mqadmin of 4.9 and 5.0 to 5.2 asks about ACL 1.0 (50 to 54).

Source:
    broker/processor/AdminBrokerProcessor.java of 4.9.8 (updateAndCreateAccessConfig … getBrokerAclConfigVersion).
"""

from collections.abc import Callable, Mapping
from typing import Final

from maxq.access.plain_acl_files import PlainAclFiles
from maxq.codes import RequestCode, ResponseCode
from maxq.errors import ConfigError
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.json import json_dialect
from maxq.remoting.connection import Connection, Processor

_UPDATE_FAILED: Final = 209  # ResponseCode.java of 4.9; later releases give these numbers to pop
_DELETE_FAILED: Final = 210
_WHITE_LIST_FAILED: Final = 211

#: Header field → setting of an account.
_TEXTS: Final = ("secretKey", "whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm")
_LISTS: Final = ("topicPerms", "groupPerms")


class PlainAclAdmin:
    """Answers the requests about ACL 1.0 of one server.

    Args:
        identity: header fields of answers that name the server: brokerName, brokerAddr, clusterName.
    """

    def __init__(self, files: PlainAclFiles, identity: Callable[[], dict[str, str]]) -> None:
        self._files = files
        self._identity = identity

    def routes(self) -> Mapping[int, Processor]:
        """Return the handler of each request code that changes or lists accounts of ACL 1.0."""
        return {
            RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: self.update_account,
            RequestCode.DELETE_ACL_CONFIG: self.delete_account,
            RequestCode.GET_BROKER_CLUSTER_ACL_INFO: self.get_versions,
            RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: self.update_global_white,
            RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG: self.refuse_secrets,
        }

    async def update_account(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer UPDATE_AND_CREATE_ACL_CONFIG (50). Fields that the request does not name stay unchanged; it always
        names `admin`."""
        ext = request.ext
        values: dict[str, object] = {"accessKey": ext.get("accessKey", "")}
        values |= {name: ext[name] for name in _TEXTS if name in ext}
        values |= {name: _split(ext[name]) for name in _LISTS if name in ext}
        values["admin"] = ext.get("admin", "false").lower() == "true"
        try:
            await self._files.update_account(values)
        except (ConfigError, OSError) as error:
            return request.reply(_UPDATE_FAILED, str(error))
        return request.reply()

    async def delete_account(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Delete an account of plain_acl.yml: answer DELETE_ACL_CONFIG (51)."""
        name = request.ext.get("accessKey", "")
        try:
            if await self._files.delete_account(name):
                return request.reply()
        except (ConfigError, OSError) as error:
            return request.reply(_DELETE_FAILED, str(error))
        remark = f"The accesskey[{name[:100]}] corresponding to accessConfig has been deleted failed: there is none."
        return request.reply(_DELETE_FAILED, remark)

    def get_versions(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer GET_BROKER_CLUSTER_ACL_INFO (52) with the number of changes to each file by requests."""
        versions = {name: version.to_json() for name, version in self._files.versions.items()}
        main = versions.get(self._files.main_file, {})
        return request.reply(
            ext={
                **self._identity(),
                "version": json_dialect.dumps(main).decode(),
                "allAclFileVersion": json_dialect.dumps(versions).decode(),
            }
        )

    async def update_global_white(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Answer UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53). Changes only a file already in use, because the request names a
        path."""
        addresses = _split(request.ext.get("globalWhiteAddrs", ""))
        try:
            await self._files.update_global_white(addresses, request.ext.get("aclFileFullPath", ""))
        except (ConfigError, OSError) as error:
            return request.reply(_WHITE_LIST_FAILED, str(error))
        return request.reply()

    def refuse_secrets(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Refuse request 54, which asks for all accounts with their secrets. RocketMQ 4.9.5 removed it, too."""
        remark = " request type 54 not supported: secrets of accounts are not told; look into the files of the server"
        return request.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
