"""Progress of groups, which is encoded directly, has the bytes that the general encoder gives."""

from maxq.protocol.body.offsets import ConsumeStats, ConsumeStatsList, OffsetWrapper
from maxq.protocol.frame.answer_limits import LongBody
from maxq.protocol.json.json_body import JsonBody
from maxq.protocol.message.message_queue import MessageQueue


def _stats(queues: int) -> ConsumeStats:
    table = {
        MessageQueue('T"ü', "broker-a", queue): OffsetWrapper(10 + queue, 7, 8, 1_700_000_000_000)
        for queue in range(queues)
    }
    return ConsumeStats(table, 0.1 * queues)


def test_consume_stats_have_the_general_form() -> None:
    for queues in (0, 1, 3):
        assert _stats(queues).encode() == JsonBody.encode(_stats(queues))
        assert ConsumeStats.decode(_stats(queues).encode()) == _stats(queues)


def test_the_list_of_all_groups_has_the_general_form() -> None:
    groups = {"G": [_stats(1), _stats(2)], 'H"': [], "I": [_stats(0)]}
    whole = ConsumeStatsList([{group: stats} for group, stats in groups.items()], "127.0.0.1:1", 9, 3)
    head = ConsumeStatsList([], "127.0.0.1:1", 9, 3)
    rows = LongBody(317, 16_384)
    for group, stats in groups.items():
        rows.add(head.begin_row(group) + b",".join(one.encode() for one in stats) + b"]}")
    assert b"".join(rows.filled(head.encode(), "consumeStatsList", b"[]")) == JsonBody.encode(whole)
