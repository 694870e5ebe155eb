"""The manual page of all requests: their codes, and what a user needs for each. Made from the table in needs.py.

python -m maxq.auth.manual > docs/reference/requests.md
"""

from maxq.auth.needs import NEEDS, Row
from maxq.codes import RequestCode

_INTRODUCTION = """\
# Every request

Do not edit this page. It is made from the table in `src/maxq/auth/needs.py`:
`python -m maxq.auth.manual > docs/reference/requests.md`

The table says what a user needs for each request where requests must be signed ([access control](security.md)).

* `Letters like these` are fields of the request's header. A field that the request leaves out needs nothing, unless the
  table says otherwise.
* **Record** names a right that the user also needs on the topic of a stored message that the request points to by its
  offset or id. The broker knows this topic only when it has read the message.
* **RocketMQ** tells whether Java RocketMQ asks for a permission, too. Where it does not,
  `strictAdminAuthorization=false` lets every user with a correct signature make the request.

Requests from 30060 to 30092 are MaxQ's own.
A request that is not in the table is refused, except to users whom no rule binds.
A request of a feature that MaxQ does not have (lite topics, the controller) is refused with the reason.

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
