"""The JSON of rows that is kept is that of the rows there are."""

from maxq.broker.tables.row_json import RowJson
from maxq.protocol.body.topic_config import TopicConfig, TopicConfigSerializeWrapper

EMPTY = TopicConfigSerializeWrapper().encode()


async def written(rows: RowJson[TopicConfig], table: dict[str, TopicConfig]) -> bytes:
    body = await rows.put_into(EMPTY, table)
    assert body == TopicConfigSerializeWrapper(table).encode()
    return body


async def test_a_body_has_the_rows_of_now_whatever_was_written_before() -> None:
    rows = RowJson[TopicConfig]("topicConfigTable")
    table = {name: TopicConfig(name) for name in ("T", 'odd"ä', "U")}
    first = await written(rows, table)
    assert await written(rows, dict(table)) == first
    await written(rows, table | {"T": TopicConfig("T", 1, 1)})
    await written(rows, {"U": table["U"]})
    await written(rows, {})


async def test_a_row_is_written_once_until_it_is_replaced_or_forgotten() -> None:
    class Counted(TopicConfig):
        def to_json(self) -> dict[str, object]:
            nonlocal count
            count += 1
            return super().to_json()

    count = 0
    rows, table = RowJson[TopicConfig]("topicConfigTable"), {"T": TopicConfig("T"), "U": Counted("U")}
    for _ in range(3):
        await rows.put_into(EMPTY, table)
    assert count == 1
    rows.forget(["U", "unknown"])
    await rows.put_into(EMPTY, table)
    assert count == 2
