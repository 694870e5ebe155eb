"""The broker selects: only messages whose properties meet a condition are delivered.

The broker needs enablePropertyFilter=true: maxq standalone --set enablePropertyFilter=true
"""

from examples.clients import name_server
from maxq.api import ConsumeFromWhere, LitePullConsumer, Message, MessageSelector, Producer

TOPIC = "ExamplePrices"


def main() -> None:
    with Producer("example-shops", name_server()) as producer:
        for price in range(0, 200, 10):
            colour = "red" if price % 20 else "blue"
            producer.send(Message(TOPIC, b"a thing", {"price": str(price), "colour": colour}))

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    with LitePullConsumer("example-buyers", name_server(), consume_from_where=first) as consumer:
        consumer.subscribe(TOPIC, MessageSelector.by_sql("price > 100 AND colour = 'red'"))
        prices: list[int] = []
        while len(prices) < 5:
            prices += [int(message.properties["price"]) for message in consumer.poll(1000)]
    print("red and above 100:", sorted(prices))


if __name__ == "__main__":
    main()
