"""A request that is answered with something else than success: the code and the remark, as a value."""

from maxq.codes import ResponseCode
from maxq.lazy_dataclass import dataclass
from maxq.protocol.frame.remoting_command import RemotingCommand

FAQ = "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal: response code and remark. The remark names the cause, the measured value, the limit and the remedy,
    as far as they exist."""

    code: ResponseCode
    remark: str
    forbidden_type: str = ""  # for pulls answered NO_PERMISSION: the permission that was missing (ForbiddenType.java)

    def reply_to(self, request: RemotingCommand, ext: dict[str, str] | None = None) -> RemotingCommand:
        """Make the answer; `ext` as given, plus forbiddenType if there is one."""
        if self.forbidden_type:
            ext = {**(ext or {}), "forbiddenType": self.forbidden_type}
        return request.reply(self.code, self.remark, ext)
