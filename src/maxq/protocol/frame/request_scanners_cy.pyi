"""Typed face of the compiled readers of single requests. See request_scanners_cy.py."""

from maxq.protocol.frame.frame_scanner_cy import OneFrameScanner

#: Header fields of a pull that make its key, in order.
PULL_KEY_FIELDS: tuple[str, ...]

class PullScanner(OneFrameScanner):
    """Reads one pull (11 or 361). `key`: the fields a reader repeats from pull to pull, in PULL_KEY_FIELDS order, each
    followed by a zero byte; the rest is what differs. Pulls with other fields, and one-way ones, are not taken."""

    key: bytes
    code: int
    opaque: int
    queue_offset: int
    commit_offset: int
    binary: bool

class EndScanner(OneFrameScanner):
    """Reads one END_TRANSACTION (37) that is one-way and answers no check; others are not taken."""

    commit_or_rollback: int
    commit_log_offset: int
    tran_state_table_offset: int
    producer_group: bytes
    topic: bytes  # empty if it names none
    msg_id: bytes

class SendBackScanner(OneFrameScanner):
    """Reads one CONSUMER_SEND_MSG_BACK (36) that asks for an answer and does not ask for a dead letter; others are not
    taken. `most_times` is maxReconsumeTimes, -1 if it is not given; `version` that of the client."""

    group: bytes
    offset: int
    origin: bytes  # originMsgId; empty if there is none
    delay_level: int
    most_times: int
    unit_mode: bool
    version: int
    opaque: int
    binary: bool
