"""Errors as lines for people."""

import errno
import re
from typing import Final

from maxq.codes import RequestCode, ResponseCode
from maxq.errors import BrokerError, RemotingConnectError, UntrustedServerError
from maxq.runtime.refusals import Cause, cause_of

_JAVA_FAQ = "See https://rocketmq.apache.org"  # end of some answers, Java's and MaxQ's, that explains nothing
_NOT_SUPPORTED: Final = re.compile(r"request type (\d+) not supported$")
_NO_HOST: Final = "Name or service not known"
_NO_ROUTE: Final = "No topic route info"
_NO_USER: Final = ("username cannot be null", "No accessKey is configured")  # ACL 2.0 and 1.0, as Java says it
_WRONG_SECRET: Final = "check signature failed"
_NO_POLICY: Final = "no matched policies."
#: Requests of commands that only name servers answer.
_OF_NAME_SERVERS: Final = frozenset(
    {
        RequestCode.PUT_KV_CONFIG,
        RequestCode.GET_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
    }
)


def error_line(error: BaseException) -> str:
    """Return the error in one line, with the notes that were added to it."""
    remedies = list(getattr(error, "__notes__", ()))
    if isinstance(error, BrokerError):
        remark = error.remark.partition(_JAVA_FAQ)[0].strip()
        place = f" from {error.address}" if error.address else ""
        if not place and error.code == ResponseCode.NO_PERMISSION:
            place = " from a name server"  # a name server has users and policies of its own
        text = f"{remark or 'refused without a reason'} (code {error.code}{place})"
        if remedy := _remedy(error.code, remark):
            remedies.append(remedy)
    elif isinstance(error, RemotingConnectError) and not isinstance(error, UntrustedServerError):
        # the remedy is written for programs, and replaced by one for the command line
        said = str(error).removesuffix(f"; {error.remedy}")
        remedy = "does that server run? (-n, NAMESRV_ADDR or a context says where the name servers are)"
        if _NO_HOST in said:
            remedy = "is that the name of a broker? -b takes its address (maxq admin clusterList shows both)"
        text = f"{said}; {remedy}"
    elif isinstance(error, OSError) and error.errno == errno.EBADF:
        text = "standard input or standard output is closed"
    else:
        text = str(error) or type(error).__name__
    return " ".join("; ".join([text, *remedies]).split())


def _remedy(code: int, remark: str) -> str:
    """Return the remedy for an answer that does not name it itself; empty if none is known."""
    if code == ResponseCode.NO_PERMISSION and remark.startswith(_NO_USER):
        return "--access-key with --secret-key, or MAXQ_ACCESS_KEY with MAXQ_SECRET_KEY, say whose this command is"
    if code == ResponseCode.NO_PERMISSION and remark.startswith(_WRONG_SECRET):
        return "that server knows another secret for this user (maxq admin updateUser)"
    if code == ResponseCode.NO_PERMISSION and remark.endswith(_NO_POLICY):
        return "maxq admin getAcl with -b and that server's address shows this user's policies there"
    if code == ResponseCode.TOPIC_NOT_EXIST and cause_of(remark) == Cause.NO_BROKER:
        return "no broker has registered with that name server: start one with maxq broker -n and its address, or wait"
    if code == ResponseCode.TOPIC_NOT_EXIST and remark.startswith(_NO_ROUTE):
        return "maxq admin topicList names the topics there are, maxq admin updateTopic creates one"
    found = _NOT_SUPPORTED.search(remark) if code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED else None
    if found is None:
        return ""
    if int(found[1]) in _OF_NAME_SERVERS:
        return "a broker answers like this: -n takes the address of a name server, usually port 9876"
    return (
        "a name server answers like this, or an older broker: the address must be a broker's (maxq admin clusterList "
        "names them)"
    )
