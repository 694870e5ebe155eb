"""Translates answers to pulls of a physical queue for the global queue that it is a part of.

Source:
    broker/processor/PullMessageProcessor.java (rewriteResponseForStaticTopic).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from maxq.codes import ResponseCode
from maxq.protocol.body.static_topic import LogicQueueMappingItem, decided, item_after
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand

#: Field of an answer about a physical queue: a slave gave it. Slaves of MaxQ say so, and `OtherBrokers` of all others.
STANDS_IN: Final = "maxqStandsIn"


def global_pull_answer(
    reply: RemotingCommand, items: Sequence[LogicQueueMappingItem], current: LogicQueueMappingItem, asked: int
) -> RemotingCommand:
    """Make the answer with global offsets; at the end of an item it sends the reader on to the next. It does not do so
    on an acting slave that lacks messages which the item is known to hold, because the reader would never come back
    to them.

    Args:
        items: the chain of the global queue.
        current: the item that was read.
        asked: the physical offset that was asked for.
    """
    if "nextBeginOffset" not in reply.ext:  # a refusal
        return reply
    fields = HeaderFields(reply.ext)
    following, low = fields.required_long("nextBeginOffset"), fields.required_long("minOffset")
    high, code = fields.required_long("maxOffset"), reply.code
    item = current
    if code != ResponseCode.SUCCESS:
        is_first = decided(items)[0].gen == current.gen
        if asked < low:
            following = low
            code = ResponseCode.PULL_OFFSET_MOVED if is_first else ResponseCode.PULL_RETRY_IMMEDIATELY
        elif asked >= high and items[-1].gen != current.gen:
            later = item_after(items, current)
            if later is None or (reply.ext.get(STANDS_IN) == "true" and high < current.end_offset):
                code = ResponseCode.PULL_NOT_FOUND
            else:
                item, following, low, high = later, later.start_offset, later.start_offset, later.start_offset
                code = ResponseCode.PULL_RETRY_IMMEDIATELY
    if item.has_end:
        following = min(following, item.end_offset)
    last = decided(items)[-1]
    ext = {
        **reply.ext,
        "nextBeginOffset": str(item.to_logic(following)),
        "minOffset": str(item.to_logic(max(low, item.start_offset))),
        "maxOffset": str(max(item.to_logic(high), last.max_logic_offset)),
        "offsetDelta": str(item.logic_offset - item.start_offset),
    }
    return replace(reply, code=code, ext=ext)
