"""From what the store says about a put to what a producer is told (SendMessageProcessor.handlePutMessageResult)."""

from maxq.broker.processors.refusal import Refusal
from maxq.codes import ResponseCode
from maxq.config.message_store_config import MessageStoreConfig
from maxq.runtime.refusals import Cause
from maxq.store.store_results import PutMessageResult, PutMessageStatus

_BUSY = "[PC_SYNCHRONIZED]broker busy, start flow control for a while."  # Java's text; the cause follows it
_LMQ = f"[{Cause.LMQ_CONSUME_QUEUE_NUM_EXCEEDED}]lmq consume queue num exceeded."


def put_refusal(result: PutMessageResult, config: MessageStoreConfig) -> Refusal:
    """Returns the refusal for a put status of the store; the store's own remark names the measured value and the
    limit."""
    match result.status:
        case PutMessageStatus.MESSAGE_ILLEGAL | PutMessageStatus.PROPERTIES_SIZE_EXCEEDED:
            text = (
                "the message is illegal, maybe msg body or properties length not matched. "
                f"msg body length limit {config.max_message_size}B, msg properties length limit 32KB."
            )
            return _refusal(ResponseCode.MESSAGE_ILLEGAL, text, result)
        case PutMessageStatus.SERVICE_NOT_AVAILABLE:
            return _refusal(ResponseCode.SERVICE_NOT_AVAILABLE, "service not available now.", result)
        case PutMessageStatus.OS_PAGE_CACHE_BUSY:
            return _refusal(ResponseCode.SYSTEM_BUSY, _BUSY, result)
        case PutMessageStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED:
            return _refusal(ResponseCode.LMQ_QUOTA_EXCEEDED, _LMQ, result)
        case PutMessageStatus.CREATE_MAPPED_FILE_FAILED:
            return _refusal(ResponseCode.SYSTEM_ERROR, "create mapped file failed, server is busy or broken.", result)
        case _:
            return _refusal(ResponseCode.SYSTEM_ERROR, result.status.name, result)


def _refusal(code: ResponseCode, text: str, result: PutMessageResult) -> Refusal:
    return Refusal(code, f"{text} {result.remark}" if result.remark else text)
