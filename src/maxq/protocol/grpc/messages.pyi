from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from enum import IntEnum
from typing import Any, Generic, Self, TypeVar

_T = TypeVar("_T")
FILES: Any

class ProtobufMessage:
    @classmethod
    def FromString(cls, data: bytes | memoryview) -> Self: ...
    def SerializeToString(self) -> bytes: ...
    def ByteSize(self) -> int: ...
    def HasField(self, name: str) -> bool: ...
    def ClearField(self, name: str) -> None: ...
    def WhichOneof(self, name: str) -> str | None: ...
    def CopyFrom(self, other: Self) -> None: ...
    def MergeFrom(self, other: Self) -> None: ...
    def SetInParent(self) -> None: ...
    def DiscardUnknownFields(self) -> None: ...
    def Clear(self) -> None: ...

class Repeated(Generic[_T]):
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[_T]: ...
    def __getitem__(self, index: int) -> _T: ...
    def append(self, value: _T) -> None: ...
    def extend(self, values: Iterable[_T]) -> None: ...

class RepeatedMessages(Repeated[_T]):
    def add(self, **fields: object) -> _T: ...

class Duration(ProtobufMessage):
    seconds: int
    nanos: int
    def __init__(self, *, seconds: int | None = None, nanos: int | None = None) -> None: ...

class Timestamp(ProtobufMessage):
    seconds: int
    nanos: int
    def __init__(self, *, seconds: int | None = None, nanos: int | None = None) -> None: ...

class TransactionResolution(IntEnum):
    TRANSACTION_RESOLUTION_UNSPECIFIED = 0
    COMMIT = 1
    ROLLBACK = 2

class TransactionSource(IntEnum):
    SOURCE_UNSPECIFIED = 0
    SOURCE_CLIENT = 1
    SOURCE_SERVER_CHECK = 2

class Permission(IntEnum):
    PERMISSION_UNSPECIFIED = 0
    NONE = 1
    READ = 2
    WRITE = 3
    READ_WRITE = 4

class FilterType(IntEnum):
    FILTER_TYPE_UNSPECIFIED = 0
    TAG = 1
    SQL = 2

class AddressScheme(IntEnum):
    ADDRESS_SCHEME_UNSPECIFIED = 0
    IPv4 = 1
    IPv6 = 2
    DOMAIN_NAME = 3

class MessageType(IntEnum):
    MESSAGE_TYPE_UNSPECIFIED = 0
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    LITE = 5
    PRIORITY = 6

class DigestType(IntEnum):
    DIGEST_TYPE_UNSPECIFIED = 0
    CRC32 = 1
    MD5 = 2
    SHA1 = 3

class ClientType(IntEnum):
    CLIENT_TYPE_UNSPECIFIED = 0
    PRODUCER = 1
    PUSH_CONSUMER = 2
    SIMPLE_CONSUMER = 3
    PULL_CONSUMER = 4
    LITE_PUSH_CONSUMER = 5
    LITE_SIMPLE_CONSUMER = 6

class Encoding(IntEnum):
    ENCODING_UNSPECIFIED = 0
    IDENTITY = 1
    GZIP = 2

class Code(IntEnum):
    CODE_UNSPECIFIED = 0
    OK = 20000
    MULTIPLE_RESULTS = 30000
    BAD_REQUEST = 40000
    ILLEGAL_ACCESS_POINT = 40001
    ILLEGAL_TOPIC = 40002
    ILLEGAL_CONSUMER_GROUP = 40003
    ILLEGAL_MESSAGE_TAG = 40004
    ILLEGAL_MESSAGE_KEY = 40005
    ILLEGAL_MESSAGE_GROUP = 40006
    ILLEGAL_MESSAGE_PROPERTY_KEY = 40007
    INVALID_TRANSACTION_ID = 40008
    ILLEGAL_MESSAGE_ID = 40009
    ILLEGAL_FILTER_EXPRESSION = 40010
    ILLEGAL_INVISIBLE_TIME = 40011
    ILLEGAL_DELIVERY_TIME = 40012
    INVALID_RECEIPT_HANDLE = 40013
    MESSAGE_PROPERTY_CONFLICT_WITH_TYPE = 40014
    UNRECOGNIZED_CLIENT_TYPE = 40015
    MESSAGE_CORRUPTED = 40016
    CLIENT_ID_REQUIRED = 40017
    ILLEGAL_POLLING_TIME = 40018
    ILLEGAL_OFFSET = 40019
    ILLEGAL_LITE_TOPIC = 40020
    INVALID_CLIENT_PROPERTIES = 40021
    UNAUTHORIZED = 40100
    PAYMENT_REQUIRED = 40200
    FORBIDDEN = 40300
    NOT_FOUND = 40400
    MESSAGE_NOT_FOUND = 40401
    TOPIC_NOT_FOUND = 40402
    CONSUMER_GROUP_NOT_FOUND = 40403
    OFFSET_NOT_FOUND = 40404
    REQUEST_TIMEOUT = 40800
    PAYLOAD_TOO_LARGE = 41300
    MESSAGE_BODY_TOO_LARGE = 41301
    MESSAGE_BODY_EMPTY = 41302
    PRECONDITION_FAILED = 42800
    TOO_MANY_REQUESTS = 42900
    LITE_TOPIC_QUOTA_EXCEEDED = 42901
    LITE_SUBSCRIPTION_QUOTA_EXCEEDED = 42902
    REQUEST_HEADER_FIELDS_TOO_LARGE = 43100
    MESSAGE_PROPERTIES_TOO_LARGE = 43101
    INTERNAL_ERROR = 50000
    INTERNAL_SERVER_ERROR = 50001
    HA_NOT_AVAILABLE = 50002
    NOT_IMPLEMENTED = 50100
    PROXY_TIMEOUT = 50400
    MASTER_PERSISTENCE_TIMEOUT = 50401
    SLAVE_PERSISTENCE_TIMEOUT = 50402
    UNSUPPORTED = 50500
    VERSION_UNSUPPORTED = 50501
    VERIFY_FIFO_MESSAGE_UNSUPPORTED = 50502
    FAILED_TO_CONSUME_MESSAGE = 60000

class Language(IntEnum):
    LANGUAGE_UNSPECIFIED = 0
    JAVA = 1
    CPP = 2
    DOT_NET = 3
    GOLANG = 4
    RUST = 5
    PYTHON = 6
    PHP = 7
    NODE_JS = 8
    RUBY = 9
    OBJECTIVE_C = 10
    DART = 11
    KOTLIN = 12

class LiteSubscriptionAction(IntEnum):
    PARTIAL_ADD = 0
    PARTIAL_REMOVE = 1
    COMPLETE_ADD = 2
    COMPLETE_REMOVE = 3

class QueryOffsetPolicy(IntEnum):
    BEGINNING = 0
    END = 1
    TIMESTAMP = 2

class FilterExpression(ProtobufMessage):
    type: int
    expression: str
    def __init__(self, *, type: int | None = None, expression: str | None = None) -> None: ...

class RetryPolicy(ProtobufMessage):
    max_attempts: int
    @property
    def exponential_backoff(self) -> ExponentialBackoff: ...
    @property
    def customized_backoff(self) -> CustomizedBackoff: ...
    def __init__(
        self,
        *,
        max_attempts: int | None = None,
        exponential_backoff: ExponentialBackoff | None = None,
        customized_backoff: CustomizedBackoff | None = None,
    ) -> None: ...

class ExponentialBackoff(ProtobufMessage):
    @property
    def initial(self) -> Duration: ...
    @property
    def max(self) -> Duration: ...
    multiplier: float
    def __init__(
        self, *, initial: Duration | None = None, max: Duration | None = None, multiplier: float | None = None
    ) -> None: ...

class CustomizedBackoff(ProtobufMessage):
    @property
    def next(self) -> RepeatedMessages[Duration]: ...
    def __init__(self, *, next: Iterable[Duration] | None = None) -> None: ...

class Resource(ProtobufMessage):
    resource_namespace: str
    name: str
    def __init__(self, *, resource_namespace: str | None = None, name: str | None = None) -> None: ...

class SubscriptionEntry(ProtobufMessage):
    @property
    def topic(self) -> Resource: ...
    @property
    def expression(self) -> FilterExpression: ...
    def __init__(self, *, topic: Resource | None = None, expression: FilterExpression | None = None) -> None: ...

class Address(ProtobufMessage):
    host: str
    port: int
    def __init__(self, *, host: str | None = None, port: int | None = None) -> None: ...

class Endpoints(ProtobufMessage):
    scheme: int
    @property
    def addresses(self) -> RepeatedMessages[Address]: ...
    def __init__(self, *, scheme: int | None = None, addresses: Iterable[Address] | None = None) -> None: ...

class Broker(ProtobufMessage):
    name: str
    id: int
    @property
    def endpoints(self) -> Endpoints: ...
    def __init__(
        self, *, name: str | None = None, id: int | None = None, endpoints: Endpoints | None = None
    ) -> None: ...

class MessageQueue(ProtobufMessage):
    @property
    def topic(self) -> Resource: ...
    id: int
    permission: int
    @property
    def broker(self) -> Broker: ...
    @property
    def accept_message_types(self) -> Repeated[int]: ...
    def __init__(
        self,
        *,
        topic: Resource | None = None,
        id: int | None = None,
        permission: int | None = None,
        broker: Broker | None = None,
        accept_message_types: Iterable[int] | None = None,
    ) -> None: ...

class Digest(ProtobufMessage):
    type: int
    checksum: str
    def __init__(self, *, type: int | None = None, checksum: str | None = None) -> None: ...

class SystemProperties(ProtobufMessage):
    tag: str
    @property
    def keys(self) -> Repeated[str]: ...
    message_id: str
    @property
    def body_digest(self) -> Digest: ...
    body_encoding: int
    message_type: int
    @property
    def born_timestamp(self) -> Timestamp: ...
    born_host: str
    @property
    def store_timestamp(self) -> Timestamp: ...
    store_host: str
    @property
    def delivery_timestamp(self) -> Timestamp: ...
    receipt_handle: str
    queue_id: int
    queue_offset: int
    @property
    def invisible_duration(self) -> Duration: ...
    delivery_attempt: int
    message_group: str
    trace_context: str
    @property
    def orphaned_transaction_recovery_duration(self) -> Duration: ...
    @property
    def dead_letter_queue(self) -> DeadLetterQueue: ...
    lite_topic: str
    priority: int
    def __init__(
        self,
        *,
        tag: str | None = None,
        keys: Iterable[str] | None = None,
        message_id: str | None = None,
        body_digest: Digest | None = None,
        body_encoding: int | None = None,
        message_type: int | None = None,
        born_timestamp: Timestamp | None = None,
        born_host: str | None = None,
        store_timestamp: Timestamp | None = None,
        store_host: str | None = None,
        delivery_timestamp: Timestamp | None = None,
        receipt_handle: str | None = None,
        queue_id: int | None = None,
        queue_offset: int | None = None,
        invisible_duration: Duration | None = None,
        delivery_attempt: int | None = None,
        message_group: str | None = None,
        trace_context: str | None = None,
        orphaned_transaction_recovery_duration: Duration | None = None,
        dead_letter_queue: DeadLetterQueue | None = None,
        lite_topic: str | None = None,
        priority: int | None = None,
    ) -> None: ...

class DeadLetterQueue(ProtobufMessage):
    topic: str
    message_id: str
    def __init__(self, *, topic: str | None = None, message_id: str | None = None) -> None: ...

class Message(ProtobufMessage):
    @property
    def topic(self) -> Resource: ...
    @property
    def user_properties(self) -> MutableMapping[str, str]: ...
    @property
    def system_properties(self) -> SystemProperties: ...
    body: bytes
    def __init__(
        self,
        *,
        topic: Resource | None = None,
        user_properties: Mapping[str, str] | None = None,
        system_properties: SystemProperties | None = None,
        body: bytes | None = None,
    ) -> None: ...

class Assignment(ProtobufMessage):
    @property
    def message_queue(self) -> MessageQueue: ...
    def __init__(self, *, message_queue: MessageQueue | None = None) -> None: ...

class Status(ProtobufMessage):
    code: int
    message: str
    def __init__(self, *, code: int | None = None, message: str | None = None) -> None: ...

class UA(ProtobufMessage):
    language: int
    version: str
    platform: str
    hostname: str
    def __init__(
        self,
        *,
        language: int | None = None,
        version: str | None = None,
        platform: str | None = None,
        hostname: str | None = None,
    ) -> None: ...

class Settings(ProtobufMessage):
    client_type: int
    @property
    def access_point(self) -> Endpoints: ...
    @property
    def backoff_policy(self) -> RetryPolicy: ...
    @property
    def request_timeout(self) -> Duration: ...
    @property
    def publishing(self) -> Publishing: ...
    @property
    def subscription(self) -> Subscription: ...
    @property
    def user_agent(self) -> UA: ...
    @property
    def metric(self) -> Metric: ...
    @property
    def client_properties(self) -> MutableMapping[str, str]: ...
    def __init__(
        self,
        *,
        client_type: int | None = None,
        access_point: Endpoints | None = None,
        backoff_policy: RetryPolicy | None = None,
        request_timeout: Duration | None = None,
        publishing: Publishing | None = None,
        subscription: Subscription | None = None,
        user_agent: UA | None = None,
        metric: Metric | None = None,
        client_properties: Mapping[str, str] | None = None,
    ) -> None: ...

class Publishing(ProtobufMessage):
    @property
    def topics(self) -> RepeatedMessages[Resource]: ...
    max_body_size: int
    validate_message_type: bool
    def __init__(
        self,
        *,
        topics: Iterable[Resource] | None = None,
        max_body_size: int | None = None,
        validate_message_type: bool | None = None,
    ) -> None: ...

class Subscription(ProtobufMessage):
    @property
    def group(self) -> Resource: ...
    @property
    def subscriptions(self) -> RepeatedMessages[SubscriptionEntry]: ...
    fifo: bool
    receive_batch_size: int
    @property
    def long_polling_timeout(self) -> Duration: ...
    lite_subscription_quota: int
    max_lite_topic_size: int
    def __init__(
        self,
        *,
        group: Resource | None = None,
        subscriptions: Iterable[SubscriptionEntry] | None = None,
        fifo: bool | None = None,
        receive_batch_size: int | None = None,
        long_polling_timeout: Duration | None = None,
        lite_subscription_quota: int | None = None,
        max_lite_topic_size: int | None = None,
    ) -> None: ...

class Metric(ProtobufMessage):
    on: bool
    @property
    def endpoints(self) -> Endpoints: ...
    def __init__(self, *, on: bool | None = None, endpoints: Endpoints | None = None) -> None: ...

class OffsetOption(ProtobufMessage):
    class Policy(IntEnum):
        LAST = 0
        MIN = 1
        MAX = 2

    policy: int
    offset: int
    tail_n: int
    timestamp: int
    def __init__(
        self,
        *,
        policy: int | None = None,
        offset: int | None = None,
        tail_n: int | None = None,
        timestamp: int | None = None,
    ) -> None: ...

class QueryRouteRequest(ProtobufMessage):
    @property
    def topic(self) -> Resource: ...
    @property
    def endpoints(self) -> Endpoints: ...
    def __init__(self, *, topic: Resource | None = None, endpoints: Endpoints | None = None) -> None: ...

class QueryRouteResponse(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    @property
    def message_queues(self) -> RepeatedMessages[MessageQueue]: ...
    def __init__(
        self, *, status: Status | None = None, message_queues: Iterable[MessageQueue] | None = None
    ) -> None: ...

class SendMessageRequest(ProtobufMessage):
    @property
    def messages(self) -> RepeatedMessages[Message]: ...
    def __init__(self, *, messages: Iterable[Message] | None = None) -> None: ...

class SendResultEntry(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    message_id: str
    transaction_id: str
    offset: int
    recall_handle: str
    def __init__(
        self,
        *,
        status: Status | None = None,
        message_id: str | None = None,
        transaction_id: str | None = None,
        offset: int | None = None,
        recall_handle: str | None = None,
    ) -> None: ...

class SendMessageResponse(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    @property
    def entries(self) -> RepeatedMessages[SendResultEntry]: ...
    def __init__(self, *, status: Status | None = None, entries: Iterable[SendResultEntry] | None = None) -> None: ...

class QueryAssignmentRequest(ProtobufMessage):
    @property
    def topic(self) -> Resource: ...
    @property
    def group(self) -> Resource: ...
    @property
    def endpoints(self) -> Endpoints: ...
    def __init__(
        self, *, topic: Resource | None = None, group: Resource | None = None, endpoints: Endpoints | None = None
    ) -> None: ...

class QueryAssignmentResponse(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    @property
    def assignments(self) -> RepeatedMessages[Assignment]: ...
    def __init__(self, *, status: Status | None = None, assignments: Iterable[Assignment] | None = None) -> None: ...

class ReceiveMessageRequest(ProtobufMessage):
    @property
    def group(self) -> Resource: ...
    @property
    def message_queue(self) -> MessageQueue: ...
    @property
    def filter_expression(self) -> FilterExpression: ...
    batch_size: int
    @property
    def invisible_duration(self) -> Duration: ...
    auto_renew: bool
    @property
    def long_polling_timeout(self) -> Duration: ...
    attempt_id: str
    def __init__(
        self,
        *,
        group: Resource | None = None,
        message_queue: MessageQueue | None = None,
        filter_expression: FilterExpression | None = None,
        batch_size: int | None = None,
        invisible_duration: Duration | None = None,
        auto_renew: bool | None = None,
        long_polling_timeout: Duration | None = None,
        attempt_id: str | None = None,
    ) -> None: ...

class ReceiveMessageResponse(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    @property
    def message(self) -> Message: ...
    @property
    def delivery_timestamp(self) -> Timestamp: ...
    def __init__(
        self,
        *,
        status: Status | None = None,
        message: Message | None = None,
        delivery_timestamp: Timestamp | None = None,
    ) -> None: ...

class AckMessageEntry(ProtobufMessage):
    message_id: str
    receipt_handle: str
    lite_topic: str
    def __init__(
        self, *, message_id: str | None = None, receipt_handle: str | None = None, lite_topic: str | None = None
    ) -> None: ...

class AckMessageRequest(ProtobufMessage):
    @property
    def group(self) -> Resource: ...
    @property
    def topic(self) -> Resource: ...
    @property
    def entries(self) -> RepeatedMessages[AckMessageEntry]: ...
    def __init__(
        self,
        *,
        group: Resource | None = None,
        topic: Resource | None = None,
        entries: Iterable[AckMessageEntry] | None = None,
    ) -> None: ...

class AckMessageResultEntry(ProtobufMessage):
    message_id: str
    receipt_handle: str
    @property
    def status(self) -> Status: ...
    def __init__(
        self, *, message_id: str | None = None, receipt_handle: str | None = None, status: Status | None = None
    ) -> None: ...

class AckMessageResponse(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    @property
    def entries(self) -> RepeatedMessages[AckMessageResultEntry]: ...
    def __init__(
        self, *, status: Status | None = None, entries: Iterable[AckMessageResultEntry] | None = None
    ) -> None: ...

class ForwardMessageToDeadLetterQueueRequest(ProtobufMessage):
    @property
    def group(self) -> Resource: ...
    @property
    def topic(self) -> Resource: ...
    receipt_handle: str
    message_id: str
    delivery_attempt: int
    max_delivery_attempts: int
    lite_topic: str
    def __init__(
        self,
        *,
        group: Resource | None = None,
        topic: Resource | None = None,
        receipt_handle: str | None = None,
        message_id: str | None = None,
        delivery_attempt: int | None = None,
        max_delivery_attempts: int | None = None,
        lite_topic: str | None = None,
    ) -> None: ...

class ForwardMessageToDeadLetterQueueResponse(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    def __init__(self, *, status: Status | None = None) -> None: ...

class HeartbeatRequest(ProtobufMessage):
    @property
    def group(self) -> Resource: ...
    client_type: int
    def __init__(self, *, group: Resource | None = None, client_type: int | None = None) -> None: ...

class HeartbeatResponse(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    def __init__(self, *, status: Status | None = None) -> None: ...

class EndTransactionRequest(ProtobufMessage):
    @property
    def topic(self) -> Resource: ...
    message_id: str
    transaction_id: str
    resolution: int
    source: int
    trace_context: str
    def __init__(
        self,
        *,
        topic: Resource | None = None,
        message_id: str | None = None,
        transaction_id: str | None = None,
        resolution: int | None = None,
        source: int | None = None,
        trace_context: str | None = None,
    ) -> None: ...

class EndTransactionResponse(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    def __init__(self, *, status: Status | None = None) -> None: ...

class PrintThreadStackTraceCommand(ProtobufMessage):
    nonce: str
    def __init__(self, *, nonce: str | None = None) -> None: ...

class ReconnectEndpointsCommand(ProtobufMessage):
    nonce: str
    def __init__(self, *, nonce: str | None = None) -> None: ...

class ThreadStackTrace(ProtobufMessage):
    nonce: str
    thread_stack_trace: str
    def __init__(self, *, nonce: str | None = None, thread_stack_trace: str | None = None) -> None: ...

class VerifyMessageCommand(ProtobufMessage):
    nonce: str
    @property
    def message(self) -> Message: ...
    def __init__(self, *, nonce: str | None = None, message: Message | None = None) -> None: ...

class VerifyMessageResult(ProtobufMessage):
    nonce: str
    def __init__(self, *, nonce: str | None = None) -> None: ...

class RecoverOrphanedTransactionCommand(ProtobufMessage):
    @property
    def message(self) -> Message: ...
    transaction_id: str
    def __init__(self, *, message: Message | None = None, transaction_id: str | None = None) -> None: ...

class NotifyUnsubscribeLiteCommand(ProtobufMessage):
    lite_topic: str
    def __init__(self, *, lite_topic: str | None = None) -> None: ...

class TelemetryCommand(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def thread_stack_trace(self) -> ThreadStackTrace: ...
    @property
    def verify_message_result(self) -> VerifyMessageResult: ...
    @property
    def recover_orphaned_transaction_command(self) -> RecoverOrphanedTransactionCommand: ...
    @property
    def print_thread_stack_trace_command(self) -> PrintThreadStackTraceCommand: ...
    @property
    def verify_message_command(self) -> VerifyMessageCommand: ...
    @property
    def reconnect_endpoints_command(self) -> ReconnectEndpointsCommand: ...
    @property
    def notify_unsubscribe_lite_command(self) -> NotifyUnsubscribeLiteCommand: ...
    def __init__(
        self,
        *,
        status: Status | None = None,
        settings: Settings | None = None,
        thread_stack_trace: ThreadStackTrace | None = None,
        verify_message_result: VerifyMessageResult | None = None,
        recover_orphaned_transaction_command: RecoverOrphanedTransactionCommand | None = None,
        print_thread_stack_trace_command: PrintThreadStackTraceCommand | None = None,
        verify_message_command: VerifyMessageCommand | None = None,
        reconnect_endpoints_command: ReconnectEndpointsCommand | None = None,
        notify_unsubscribe_lite_command: NotifyUnsubscribeLiteCommand | None = None,
    ) -> None: ...

class NotifyClientTerminationRequest(ProtobufMessage):
    @property
    def group(self) -> Resource: ...
    def __init__(self, *, group: Resource | None = None) -> None: ...

class NotifyClientTerminationResponse(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    def __init__(self, *, status: Status | None = None) -> None: ...

class ChangeInvisibleDurationRequest(ProtobufMessage):
    @property
    def group(self) -> Resource: ...
    @property
    def topic(self) -> Resource: ...
    receipt_handle: str
    @property
    def invisible_duration(self) -> Duration: ...
    message_id: str
    lite_topic: str
    suspend: bool
    def __init__(
        self,
        *,
        group: Resource | None = None,
        topic: Resource | None = None,
        receipt_handle: str | None = None,
        invisible_duration: Duration | None = None,
        message_id: str | None = None,
        lite_topic: str | None = None,
        suspend: bool | None = None,
    ) -> None: ...

class ChangeInvisibleDurationResponse(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    receipt_handle: str
    def __init__(self, *, status: Status | None = None, receipt_handle: str | None = None) -> None: ...

class PullMessageRequest(ProtobufMessage):
    @property
    def group(self) -> Resource: ...
    @property
    def message_queue(self) -> MessageQueue: ...
    offset: int
    batch_size: int
    @property
    def filter_expression(self) -> FilterExpression: ...
    @property
    def long_polling_timeout(self) -> Duration: ...
    def __init__(
        self,
        *,
        group: Resource | None = None,
        message_queue: MessageQueue | None = None,
        offset: int | None = None,
        batch_size: int | None = None,
        filter_expression: FilterExpression | None = None,
        long_polling_timeout: Duration | None = None,
    ) -> None: ...

class PullMessageResponse(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    @property
    def message(self) -> Message: ...
    next_offset: int
    def __init__(
        self, *, status: Status | None = None, message: Message | None = None, next_offset: int | None = None
    ) -> None: ...

class UpdateOffsetRequest(ProtobufMessage):
    @property
    def group(self) -> Resource: ...
    @property
    def message_queue(self) -> MessageQueue: ...
    offset: int
    def __init__(
        self, *, group: Resource | None = None, message_queue: MessageQueue | None = None, offset: int | None = None
    ) -> None: ...

class UpdateOffsetResponse(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    def __init__(self, *, status: Status | None = None) -> None: ...

class GetOffsetRequest(ProtobufMessage):
    @property
    def group(self) -> Resource: ...
    @property
    def message_queue(self) -> MessageQueue: ...
    def __init__(self, *, group: Resource | None = None, message_queue: MessageQueue | None = None) -> None: ...

class GetOffsetResponse(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    offset: int
    def __init__(self, *, status: Status | None = None, offset: int | None = None) -> None: ...

class QueryOffsetRequest(ProtobufMessage):
    @property
    def message_queue(self) -> MessageQueue: ...
    query_offset_policy: int
    @property
    def timestamp(self) -> Timestamp: ...
    def __init__(
        self,
        *,
        message_queue: MessageQueue | None = None,
        query_offset_policy: int | None = None,
        timestamp: Timestamp | None = None,
    ) -> None: ...

class QueryOffsetResponse(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    offset: int
    def __init__(self, *, status: Status | None = None, offset: int | None = None) -> None: ...

class RecallMessageRequest(ProtobufMessage):
    @property
    def topic(self) -> Resource: ...
    recall_handle: str
    def __init__(self, *, topic: Resource | None = None, recall_handle: str | None = None) -> None: ...

class RecallMessageResponse(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    message_id: str
    def __init__(self, *, status: Status | None = None, message_id: str | None = None) -> None: ...

class SyncLiteSubscriptionRequest(ProtobufMessage):
    action: int
    @property
    def topic(self) -> Resource: ...
    @property
    def group(self) -> Resource: ...
    @property
    def lite_topic_set(self) -> Repeated[str]: ...
    version: int
    @property
    def offset_option(self) -> OffsetOption: ...
    def __init__(
        self,
        *,
        action: int | None = None,
        topic: Resource | None = None,
        group: Resource | None = None,
        lite_topic_set: Iterable[str] | None = None,
        version: int | None = None,
        offset_option: OffsetOption | None = None,
    ) -> None: ...

class SyncLiteSubscriptionResponse(ProtobufMessage):
    @property
    def status(self) -> Status: ...
    def __init__(self, *, status: Status | None = None) -> None: ...
