"""RocketMQ's gRPC messages, `apache.rocketmq.v2`.

`proto` has the files of github.com/apache/rocketmq-apis. `messages.py` are the classes made of them
(`python -m tests.unit.protocol.grpc.message_classes`). protobuf is loaded with that module and with no other, so only
what serves gRPC imports it. `popped_cy.py` makes the answers to ReceiveMessage from records (`popped.py` is one).
"""
