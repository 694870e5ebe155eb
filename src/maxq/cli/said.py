"""Errors as lines for people."""

from maxq.errors import BrokerError, RemotingConnectError

_JAVA_FAQ = "See https://rocketmq.apache.org"  # which ends some answers, Java's and ours, and explains nothing


def said(error: BaseException) -> str:
    """What went wrong, in one line."""
    if isinstance(error, BrokerError):
        remark = error.remark.partition(_JAVA_FAQ)[0].strip()
        place = f" from {error.address}" if error.address else ""
        text = f"{remark or 'refused without a reason'} (code {error.code}{place})"
    elif isinstance(error, RemotingConnectError):
        text = f"{error}; does that server run? (-n or NAMESRV_ADDR says where the name servers are)"
    else:
        text = str(error) or type(error).__name__
    return " ".join(text.split())
