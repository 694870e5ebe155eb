"""The manual page of all requests: their codes, and what a user needs for each. Made from the table in needs.py.

python -m maxq.auth.manual > docs/requests.md
"""

from maxq.auth.needs import NEEDS, Row
from maxq.codes import RequestCode

_INTRODUCTION = """\
# Every request

Made from the table in `src/maxq/auth/needs.py` by `python -m maxq.auth.manual > docs/requests.md`; do not edit.

What a user needs where requests must be signed ([security.md](security.md)). Words in `letters like these` are header
fields; one that a request leaves out needs nothing, unless it says otherwise here. **Record** is what is needed as well
on the topic of each stored message that the request turns out to mean. **RocketMQ** tells whether RocketMQ asks for
anything, too; where it does not, `strictAdminAuthorization=false` lets every user do it whose signature is right.

Requests from 30060 to 30091 are MaxQ's own. A request that is not here is refused, except to users whom no rule binds.
One of a feature that MaxQ does not have (lite topics, the controller) is refused with the reason.

| code | request | needs | record | RocketMQ |
|---|---|---|---|---|
"""


def render() -> str:
    """Return the page on what each request needs, as Markdown."""
    return _INTRODUCTION + "".join(_line(RequestCode(code), row) for code, row in sorted(NEEDS.items()))


def _line(code: RequestCode, row: Row) -> str:
    record = " or ".join(action.value for action in row.of_record)
    asks = "" if row.by_request.words == "nothing" else "yes" if row.in_rocketmq else "no"
    cells = (str(int(code)), f"`{code.name}`", row.by_request.words, record, asks)
    return f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    print(render(), end="")
