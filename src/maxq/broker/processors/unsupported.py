"""UnsupportedProcessor: requests of features that are not there, answered so that a person understands it.

Clients take code 3 as "this broker cannot do that"; the remark says what.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from maxq.broker.processors.support import RequestProcessor
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.remoting.connection import Connection, Processor

_FEATURES: Final[dict[str, Iterable[RequestCode]]] = {
    "lite topics": [
        RequestCode.POP_LITE_MESSAGE,
        RequestCode.LITE_SUBSCRIPTION_CTL,
        RequestCode.ACK_LITE_MESSAGE,
        RequestCode.GET_BROKER_LITE_INFO,
        RequestCode.GET_PARENT_TOPIC_INFO,
        RequestCode.GET_LITE_TOPIC_INFO,
        RequestCode.GET_LITE_CLIENT_INFO,
        RequestCode.GET_LITE_GROUP_INFO,
        RequestCode.TRIGGER_LITE_DISPATCH,
    ],
    "RocksDB storage": [RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON],
    "the controller mode": [
        RequestCode.GET_BROKER_EPOCH_CACHE,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
    ],
    "the broker container": [RequestCode.ADD_BROKER, RequestCode.REMOVE_BROKER],
}


class UnsupportedProcessor(RequestProcessor):
    """Answers unsupported requests with code 3 and the reason."""

    def __init__(self) -> None:
        self._feature_of = {int(code): feature for feature, codes in _FEATURES.items() for code in codes}

    def routes(self) -> Mapping[int, Processor]:
        return dict.fromkeys(self._feature_of, self.refuse)

    def refuse(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        name = RequestCode(request.code).name
        return request.reply(
            ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
            f" request type {request.code} not supported: {name} belongs to {self._feature_of[request.code]}, "
            "which MaxQ does not have",
        )
