"""The JSON schemas of what commands print with --json; `maxq schema` prints them, tests hold them against real output.

`record` is an object with all these members, `maybe` one that may be missing, `rows` an array of such objects. Later
releases may add members, so schemas allow others. Where a command asks several servers, an object may have the member
`failures`: server → why it did not answer.
"""

from typing import Any, Final

Schema = dict[str, Any]

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_MAYBE: Final = "x-maybe"

TEXT: Final[Schema] = {"type": "string"}
WHOLE: Final[Schema] = {"type": "integer"}
NUMBER: Final[Schema] = {"type": "number"}
SWITCH: Final[Schema] = {"type": "boolean"}
ANY: Final[Schema] = {}
OBJECT: Final[Schema] = {"type": "object"}
SETTING: Final[Schema] = {"type": ["string", "number", "boolean"]}


def array(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def mapping(values: Schema) -> Schema:
    """Return the schema of an object whose members have names that users chose."""
    return {"type": "object", "additionalProperties": values}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def maybe(schema: Schema) -> Schema:
    """Mark a member of a record that may be missing."""
    return {**schema, _MAYBE: True}


def record(**members: Schema) -> Schema:
    properties = {
        name: {key: value for key, value in schema.items() if key != _MAYBE} for name, schema in members.items()
    }
    required = [name for name, schema in members.items() if _MAYBE not in schema]
    return {"type": "object", "properties": properties, "required": required}


def rows(**columns: Schema) -> Schema:
    return array(record(**columns))


TEXTS: Final = array(TEXT)
FAILURES: Final = mapping(TEXT)
TIME_TEXT: Final[Schema] = {"type": "string", "description": "Local time, 2026-01-31 08:00:00,000; empty: never."}
_FAILED: Final = maybe(FAILURES)


def by_server(values: Schema) -> Schema:
    """Return the schema of an object with a member for each server that answered."""
    return {"type": "object", "properties": {"failures": FAILURES}, "additionalProperties": values}


def done(**facts: Schema) -> Schema:
    """Return the schema of a success: mqadmin's sentence, and facts."""
    return record(done=TEXT, **facts)


def on_brokers(**facts: Schema) -> Schema:
    """Return the schema of a change on several brokers: those on which it was made, and facts."""
    return record(brokers=TEXTS, **facts, failures=_FAILED)


_MESSAGE_MEMBERS: Final = {
    "topic": TEXT, "brokerName": TEXT, "queueId": WHOLE, "queueOffset": WHOLE, "physicalOffset": WHOLE, "size": WHOLE,
    "msgId": TEXT, "uniqKey": TEXT, "tags": nullable(TEXT), "keys": nullable(TEXT), "flag": WHOLE, "sysFlag": WHOLE,
    "bornTimestamp": WHOLE, "storeTimestamp": WHOLE, "bornHost": TEXT, "storeHost": TEXT, "reconsumeTimes": WHOLE,
    "properties": mapping(TEXT), "body": maybe(TEXT), "bodyBase64": maybe(TEXT), "bodyFault": maybe(TEXT),
}  # fmt: skip
MESSAGE: Final = record(**_MESSAGE_MEMBERS)
ONE_MESSAGE: Final = record(
    **_MESSAGE_MEMBERS, tracks=rows(group=TEXT, type=TEXT, exception=nullable(TEXT))
)  # fmt: skip
LETTER: Final = record(**_MESSAGE_MEMBERS, originTopic=TEXT, originMsgId=TEXT)
QUEUE: Final = record(topic=TEXT, brokerName=TEXT, queueId=WHOLE)
TOPIC_CONFIG: Final = record(
    attributes=mapping(TEXT), order=SWITCH, perm=WHOLE, readQueueNums=WHOLE, topicFilterType=TEXT, topicName=TEXT,
    topicSysFlag=WHOLE, writeQueueNums=WHOLE,
)  # fmt: skip
_GROUP_MEMBERS: Final = {
    "attributes": mapping(TEXT), "brokerId": WHOLE, "consumeBroadcastEnable": SWITCH, "consumeEnable": SWITCH,
    "consumeFromMinEnable": SWITCH, "consumeMessageOrderly": SWITCH, "consumeTimeoutMinute": WHOLE, "groupName": TEXT,
    "groupRetryPolicy": OBJECT, "groupSysFlag": WHOLE, "notifyConsumerIdsChangedEnable": SWITCH,
    "retryMaxTimes": WHOLE, "retryQueueNums": WHOLE, "subscriptionDataSet": maybe(ANY),
    "whichBrokerWhenConsumeSlowly": WHOLE,
}  # fmt: skip
GROUP_CONFIG: Final = record(**_GROUP_MEMBERS)
CONNECTIONS: Final = rows(clientId=TEXT, clientAddr=TEXT, language=TEXT, version=TEXT)
OFFSETS: Final = rows(brokerName=TEXT, queueId=WHOLE, offset=WHOLE)
STATIC_QUEUES: Final = rows(queue=WHOLE, broker=TEXT, physicalQueue=WHOLE, logicOffset=WHOLE, generation=WHOLE)
USERS: Final = rows(username=TEXT, password=TEXT, userType=TEXT, userStatus=TEXT)
POLICIES: Final = rows(
    subject=TEXT, policyType=TEXT, resource=TEXT, actions=TEXT, sourceIps=TEXT, decision=TEXT
)  # fmt: skip
LITE: Final = by_server(OBJECT)
_STAGE: Final = record(stage=TEXT, share=NUMBER, p50Us=NUMBER, p99Us=NUMBER, maxUs=NUMBER)

_ADMIN: Final[dict[str, Schema]] = {
    # topics
    "updateTopic": on_brokers(topic=TOPIC_CONFIG),
    "updateTopicList": on_brokers(topics=WHOLE),
    "updateTopicPerm": rows(broker=TEXT, oldPerm=WHOLE, newPerm=WHOLE),
    "deleteTopic": record(topic=TEXT, cluster=TEXT, brokers=TEXTS, nameServers=SWITCH, left=TEXT, failures=_FAILED),
    "topicList": array({"anyOf": [TEXT, record(cluster=TEXT, topic=TEXT, consumerGroup=TEXT)]}),
    "topicRoute": record(
        brokerDatas=rows(
            brokerAddrs=mapping(TEXT), brokerName=TEXT, cluster=TEXT, enableActingMaster=SWITCH, zoneName=maybe(TEXT)
        ),
        queueDatas=rows(brokerName=TEXT, perm=WHOLE, readQueueNums=WHOLE, writeQueueNums=WHOLE, topicSysFlag=WHOLE),
        filterServerTable=OBJECT,
        orderTopicConf=maybe(TEXT),
        topicQueueMappingByBroker=maybe(OBJECT),
    ),
    "topicStatus": rows(brokerName=TEXT, queueId=WHOLE, minOffset=WHOLE, maxOffset=WHOLE, lastUpdated=TIME_TEXT),
    "topicClusterList": TEXTS,
    "updateOrderConf": done(topic=TEXT, orderConf=TEXT),
    "allocateMQ": record(result=mapping(array(QUEUE))),
    "updateStaticTopic": STATIC_QUEUES,
    "remappingStaticTopic": STATIC_QUEUES,
    # groups and connections
    "updateSubGroup": on_brokers(group=GROUP_CONFIG),
    "updateSubGroupList": on_brokers(groups=WHOLE),
    "deleteSubGroup": on_brokers(),
    "getConsumerConfig": rows(cluster=TEXT, brokerName=TEXT, **_GROUP_MEMBERS),
    "consumerProgress": array(
        {
            "anyOf": [
                record(group=TEXT, count=WHOLE, version=TEXT, type=TEXT, model=TEXT, tps=NUMBER, diffTotal=WHOLE),
                record(
                    topic=TEXT,
                    brokerName=TEXT,
                    queueId=WHOLE,
                    brokerOffset=WHOLE,
                    consumerOffset=WHOLE,
                    clientIp=maybe(TEXT),
                    clientId=maybe(TEXT),
                    diff=WHOLE,
                    inflight=WHOLE,
                    lastTime=TIME_TEXT,
                ),
            ]
        }
    ),
    "consumerConnection": OBJECT,
    "consumerStatus": {
        "anyOf": [
            rows(
                index=TEXT,
                clientId=TEXT,
                clientAddr=TEXT,
                version=TEXT,
                queues=WHOLE,
                subscriptions=mapping(TEXT),
                jstack=maybe(TEXT),
            ),
            OBJECT,
        ]
    },
    "producerConnection": CONNECTIONS,
    "producer": rows(producerGroup=TEXT, clientId=TEXT, clientAddr=TEXT, language=TEXT, version=TEXT),
    "setConsumeMode": done(brokers=TEXTS, mode=TEXT),
    "startMonitoring": rows(group=TEXT, kind=TEXT, topic=TEXT, detail=TEXT),
    # offsets
    "resetOffsetByTime": {"anyOf": [OFFSETS, done(brokerName=TEXT, queueId=WHOLE, offset=WHOLE)]},
    "skipAccumulatedMessage": OFFSETS,
    "cloneGroupOffset": OFFSETS,
    # messages
    "queryMsgById": ONE_MESSAGE,
    "queryMsgByKey": array(MESSAGE),
    "queryMsgByUniqueKey": {"anyOf": [ONE_MESSAGE, array(MESSAGE)]},
    "queryMsgByOffset": ONE_MESSAGE,
    "printMsg": array(MESSAGE),
    "printMsgByQueue": record(messages=array(MESSAGE), tags=mapping(WHOLE)),
    "consumeMessage": array(MESSAGE),
    "sendMessage": rows(brokerName=TEXT, queueId=WHOLE, status=TEXT, msgId=TEXT),
    "queryCq": record(
        queueData=rows(
            physicOffset=WHOLE,
            physicSize=WHOLE,
            tagsCode=WHOLE,
            eval=SWITCH,
            extendDataJson=maybe(TEXT),
            bitMap=maybe(TEXT),
            msg=maybe(TEXT),
        ),
        filterData=maybe(TEXT),
        maxQueueIndex=WHOLE,
        minQueueIndex=WHOLE,
        subscriptionData=maybe(OBJECT),
    ),
    "sendMsgStatus": rows(rtMs=NUMBER, status=TEXT, msgId=TEXT, queueId=WHOLE, queueOffset=WHOLE),
    "checkMsgSendRT": rows(brokerName=TEXT, queueId=WHOLE, sent=SWITCH, rtMs=NUMBER),
    "clusterRT": rows(cluster=TEXT, brokerName=TEXT, rtMs=NUMBER, successCount=WHOLE, failCount=WHOLE),
    "dumpCompactionLog": array(MESSAGE),
    "queryMsgTraceById": array(OBJECT),
    # brokers and clusters
    "clusterList": array(
        {
            "anyOf": [
                record(
                    cluster=TEXT,
                    brokerName=TEXT,
                    brokerId=WHOLE,
                    address=TEXT,
                    version=TEXT,
                    inTps=NUMBER,
                    inQueueSize=WHOLE,
                    inQueueWaitMs=WHOLE,
                    outTps=NUMBER,
                    outQueueSize=WHOLE,
                    outQueueWaitMs=WHOLE,
                    timerReadBehind=WHOLE,
                    timerOffsetBehind=WHOLE,
                    pageCacheWait=WHOLE,
                    hour=NUMBER,
                    space=NUMBER,
                    activated=SWITCH,
                ),
                record(
                    cluster=TEXT,
                    brokerName=TEXT,
                    inTotalYesterday=WHOLE,
                    outTotalYesterday=WHOLE,
                    inTotalToday=WHOLE,
                    outTotalToday=WHOLE,
                ),
            ]
        }
    ),
    "brokerStatus": {"anyOf": [mapping(SETTING), by_server(mapping(SETTING))]},
    "getBrokerConfig": {"anyOf": [mapping(SETTING), by_server(mapping(SETTING))]},
    "updateBrokerConfig": on_brokers(key=TEXT, value=TEXT, notes=mapping(TEXT)),
    "brokerConsumeStats": rows(
        topic=TEXT,
        group=TEXT,
        brokerName=TEXT,
        queueId=WHOLE,
        brokerOffset=WHOLE,
        consumerOffset=WHOLE,
        diff=WHOLE,
        lastTime=TIME_TEXT,
    ),
    "statsAll": rows(
        topic=TEXT,
        consumerGroup=TEXT,
        accumulation=WHOLE,
        inTps=NUMBER,
        outTps=nullable(NUMBER),
        inMessages24h=WHOLE,
        outMessages24h=nullable(WHOLE),
    ),
    "haStatus": by_server(
        record(
            master=SWITCH,
            masterCommitLogMaxOffset=WHOLE,
            inSyncSlaveNums=WHOLE,
            haConnectionInfo=rows(
                addr=TEXT,
                slaveAckOffset=WHOLE,
                diff=WHOLE,
                inSync=SWITCH,
                transferredByteInSecond=WHOLE,
                transferFromWhere=WHOLE,
            ),
            haClientRuntimeInfo=record(
                masterAddr=maybe(TEXT),
                maxOffset=WHOLE,
                masterFlushOffset=WHOLE,
                lastReadTimestamp=WHOLE,
                lastWriteTimestamp=WHOLE,
                transferredByteInSecond=WHOLE,
            ),
        )
    ),
    "dledgerStatus": rows(
        group=TEXT,
        member=TEXT,
        address=TEXT,
        role=TEXT,
        term=nullable(WHOLE),
        leader=TEXT,
        begin=nullable(WHOLE),
        end=nullable(WHOLE),
        durable=nullable(WHOLE),
        committed=nullable(WHOLE),
        behind=nullable(WHOLE),
    ),
    "dledgerTransfer": done(group=TEXT, leader=TEXT),
    "cleanExpiredCQ": record(done=SWITCH, brokers=TEXTS, failures=_FAILED),
    "cleanUnusedTopic": record(done=SWITCH, brokers=TEXTS, failures=_FAILED),
    "deleteExpiredCommitLog": record(done=SWITCH, brokers=TEXTS, failures=_FAILED),
    "why-slow": record(
        samples=WHOLE,
        oneIn=WHOLE,
        messages=WHOLE,
        fromMs=WHOLE,
        toMs=WHOLE,
        stages=array(_STAGE),
        total=_STAGE,
        slowest=array(OBJECT),
        refused=mapping(WHOLE),
        holds=rows(cause=TEXT, count=WHOLE, totalMs=NUMBER, longestMs=NUMBER),
    ),
    "purgeTopic": record(
        brokers=mapping(
            record(
                topic=TEXT,
                dryRun=SWITCH,
                messages=WHOLE,
                groups=rows(group=TEXT, unread=WHOLE),
                queues=rows(queueId=WHOLE, minOffset=WHOLE, maxOffset=WHOLE, newMinOffset=WHOLE, messages=WHOLE),
            )
        ),
        failures=_FAILED,
    ),
    "switchTimerEngine": on_brokers(engine=TEXT),
    "getColdDataFlowCtrInfo": by_server(nullable(OBJECT)),
    "updateColdDataFlowCtrGroupConfig": on_brokers(group=TEXT, threshold=WHOLE),
    "removeColdDataFlowCtrGroupConfig": on_brokers(group=TEXT),
    "setCommitLogReadAheadMode": by_server(TEXT),
    "resetMasterFlushOffset": done(broker=TEXT, masterFlushOffset=WHOLE),
    # exports
    "exportMetadata": done(file=TEXT, topics=WHOLE, subscriptionGroups=WHOLE, failures=_FAILED),
    "exportConfigs": done(file=TEXT, brokers=WHOLE, failures=_FAILED),
    "exportMetrics": done(file=TEXT, brokers=WHOLE, failures=_FAILED),
    # what only Java's servers have
    "getBrokerEpoch": by_server(OBJECT),
    "getSyncStateSet": mapping(OBJECT),
    "getControllerMetaData": OBJECT,
    "getControllerConfig": by_server(mapping(SETTING)),
    "updateControllerConfig": record(controllers=TEXTS, key=TEXT, value=TEXT, failures=_FAILED),
    "electMaster": record(brokerAddrs=mapping(TEXT)),
    "cleanBrokerMetadata": done(brokerName=TEXT, ids=nullable(TEXT)),
    "addBroker": done(container=TEXT, configPath=TEXT),
    "removeBroker": done(container=TEXT, broker=TEXT),
    "getBrokerLiteInfo": LITE,
    "getParentTopicInfo": LITE,
    "getLiteTopicInfo": LITE,
    "getLiteClientInfo": LITE,
    "getLiteGroupInfo": LITE,
    "triggerLiteDispatch": on_brokers(),
    "exportPopRecord": rows(broker=TEXT, brokerName=TEXT, dryRun=SWITCH),
    "rocksDBConfigToJson": on_brokers(configTypes=TEXTS),
    "exportMetadataInRocksDB": {"not": {}},
    "checkRocksdbCqWriteProgress": by_server(OBJECT),
    # name servers
    "getNamesrvConfig": by_server(mapping(SETTING)),
    "updateNamesrvConfig": done(nameServers=TEXTS, failures=_FAILED),
    "updateKvConfig": done(nameServers=TEXTS, namespace=TEXT, key=TEXT, value=TEXT, failures=_FAILED),
    "deleteKvConfig": done(nameServers=TEXTS, namespace=TEXT, key=TEXT, failures=_FAILED),
    "wipeWritePerm": rows(nameServer=TEXT, topics=WHOLE),
    "addWritePerm": rows(nameServer=TEXT, topics=WHOLE),
    # users and policies
    "createUser": on_brokers(),
    "updateUser": on_brokers(),
    "deleteUser": on_brokers(),
    "getUser": USERS,
    "listUser": USERS,
    "copyUser": array(record(user=TEXT)),
    "createAcl": on_brokers(),
    "updateAcl": on_brokers(),
    "deleteAcl": on_brokers(),
    "getAcl": POLICIES,
    "listAcl": POLICIES,
    "copyAcl": array(record(acl=TEXT)),
}
_RECOVERY: Final = record(
    cleanExit=SWITCH, logStart=WHOLE, logEnd=WHOLE, checkedFrom=WHOLE, recordsChecked=WHOLE, bytesChecked=WHOLE,
    cutBytes=WHOLE, cutReason=TEXT, damages=rows(file=TEXT, position=WHOLE, size=WHOLE, reason=TEXT), faults=TEXTS,
    rebuilt=TEXTS, dispatchedFrom=WHOLE, dispatchedRecords=WHOLE, queues=WHOLE, durationMs=WHOLE,
)  # fmt: skip
_TIMERS: Final = rows(
    brokerName=TEXT, state=TEXT, dueMs=WHOLE, slotMs=WHOLE, physicalOffset=WHOLE, size=WHOLE, timerLogPosition=WHOLE,
    enqueuedMs=WHOLE, topic=maybe(TEXT), queueId=maybe(WHOLE), msgId=maybe(TEXT), timerQueueOffset=maybe(WHOLE),
    storedMs=maybe(WHOLE), outMs=maybe(WHOLE), rolls=maybe(WHOLE), recalls=maybe(TEXT), why=maybe(TEXT),
)  # fmt: skip
_FORMS: Final = rows(
    form=TEXT, stored=TIME_TEXT, topic=TEXT, queueId=WHOLE, queueOffset=WHOLE, checks=WHOLE, msgId=TEXT
)  # fmt: skip
_DONE_CONTEXT: Final = done(context=TEXT, file=TEXT)
_FOUND: Final = record(value=TEXT, source=TEXT)
_TABLES: Final = array(OBJECT)
_SOURCE: Final = record(
    topics=TEXTS, namesrv=nullable(TEXT), stores=TEXTS, sinceMs=nullable(WHOLE), untilMs=nullable(WHOLE)
)  # fmt: skip

#: Command without `maxq` → schema.
SCHEMAS: Final[dict[str, Schema]] = {
    **{f"admin {name}": schema for name, schema in _ADMIN.items()},
    "consume": MESSAGE,
    "tail": MESSAGE,
    "dlq list": rows(group=TEXT, count=WHOLE, redriven=WHOLE, last=TIME_TEXT),
    "dlq show": array(LETTER),
    "dlq export": record(done=maybe(TEXT), group=TEXT, count=WHOLE, file=maybe(TEXT)),
    "dlq redrive": done(group=TEXT, count=WHOLE),
    "timer list": _TIMERS,
    "timer inspect": _TIMERS,
    "timer cancel": done(msgId=TEXT, address=TEXT),
    "transaction list": rows(
        transactionId=TEXT, topic=TEXT, group=TEXT, born=TIME_TEXT, ageSeconds=WHOLE, checks=WHOLE,
        immunitySeconds=TEXT, queueOffset=WHOLE, msgId=TEXT,
    ),
    "transaction inspect": record(transactionId=TEXT, topic=TEXT, group=TEXT, verdict=TEXT, forms=_FORMS),
    "transaction resume": done(transactionId=TEXT, msgId=TEXT),
    "context add": _DONE_CONTEXT,
    "context list": rows(name=TEXT, current=SWITCH, namesrv=TEXT, tls=TEXT, accessKey=TEXT),
    "context show": record(
        namesrv=_FOUND, tls=maybe(_FOUND), accessKey=maybe(_FOUND), secretKey=maybe(_FOUND),
        securityToken=maybe(_FOUND),
    ),
    "context use": done(context=nullable(TEXT)),
    "context remove": _DONE_CONTEXT,
    "dledger status": _ADMIN["dledgerStatus"],
    "store messages": record(
        topic=TEXT, queueId=WHOLE, queueOffset=WHOLE, physicalOffset=WHOLE, size=WHOLE, msgId=TEXT, uniqKey=TEXT,
        bodyMd5=nullable(TEXT), storedBodyMd5=TEXT, storedBodyLen=WHOLE, bodyCrc=WHOLE, sysFlag=WHOLE, flag=WHOLE,
        bornTimestamp=WHOLE, storeTimestamp=WHOLE, bornHost=TEXT, storeHost=TEXT, reconsumeTimes=WHOLE,
        preparedTransactionOffset=WHOLE, properties=mapping(TEXT), bodyFault=maybe(TEXT),
    ),
    "store offsets": rows(topic=TEXT, queueId=WHOLE, minOffset=WHOLE, maxOffset=WHOLE),
    "store check": record(
        ok=SWITCH, logStart=WHOLE, logEnd=WHOLE, records=WHOLE, queueUnits=WHOLE, indexEntries=WHOLE,
        damagedRanges=WHOLE, faults=rows(file=TEXT, position=nullable(WHOLE), what=TEXT, remedy=TEXT), notes=TEXTS,
    ),
    "store recover": _RECOVERY,
    "store rehearse": record(
        answer={"enum": ["yes", "no"]}, obstacles=TEXTS, remarks=TEXTS, recovery=TEXTS, queues=WHOLE, units=WHOLE,
        equal=WHOLE, repaired=WHOLE,
    ),
    "sql": array(OBJECT),
    "pipeline archive run": record(
        messages=WHOLE, files=WHOLE, bytes=WHOLE, removed=maybe(TEXTS), ranges=maybe(mapping(array(array(WHOLE)))),
    ),
    "pipeline archive verify": record(
        ok=SWITCH, files=WHOLE, messages=WHOLE, removed=maybe(WHOLE),
        findings=rows(
            kind=TEXT, fault=SWITCH, topic=nullable(TEXT), brokerName=nullable(TEXT), queueId=nullable(WHOLE),
            firstOffset=nullable(WHOLE), lastOffset=nullable(WHOLE), file=nullable(TEXT), detail=TEXT,
        ),
        queues=rows(queue=TEXT, messages=WHOLE, ranges=array(array(WHOLE)), broker=nullable(array(WHOLE))),
    ),
    "pipeline archive compact": record(filesBefore=WHOLE, filesAfter=WHOLE, messages=WHOLE),
    "pipeline archive table": record(appended=WHOLE, before=WHOLE),
    "pipeline audit": record(
        ok=SWITCH, faultCount=WHOLE, byKind=rows(store=TEXT, kind=TEXT, faults=WHOLE),
        stores=rows(
            store=TEXT, logStart=WHOLE, logEnd=WHOLE, units=WHOLE, indexEntries=WHOLE, comparedBytes=WHOLE,
            brokerRuns=SWITCH,
        ),
        faults=rows(store=TEXT, file=TEXT, position=ANY, kind=TEXT, expected=ANY, found=ANY),
    ),
    "pipeline rebuild": record(
        folder=TEXT, logStart=WHOLE, logEnd=WHOLE, records=WHOLE, queues=WHOLE, units=WHOLE, batchUnits=WHOLE,
        indexEntries=WHOLE, indexFiles=TEXTS, keptQueues=WHOLE, tornTail=TEXT, lostMessages=WHOLE,
    ),
    "pipeline replay": {
        "anyOf": [record(sent=WHOLE, pieces=WHOLE, sentBefore=WHOLE), record(messages=WHOLE, rows=array(OBJECT))]
    },
    "pipeline trace": record(
        settings=record(
            source=_SOURCE, slow_ms=WHOLE, grace_ms=WHOLE, most=WHOLE, store_times=SWITCH, message_id=nullable(TEXT)
        ),
        first_ms=nullable(WHOLE), last_ms=nullable(WHOLE), step_ms=WHOLE, sent=WHOLE, consumed=WHOLE, broken=WHOLE,
        queues=_TABLES, records=_TABLES, overall=_TABLES, groups=_TABLES, course=_TABLES, distribution=_TABLES,
        not_consumed=_TABLES, undelivered=_TABLES, undelivered_count=WHOLE, slow=_TABLES, slow_count=mapping(WHOLE),
        backwards=WHOLE, backwards_ms=WHOLE, store_measured=SWITCH, way=_TABLES,
    ),
    "pipeline stats": record(
        settings=record(source=_SOURCE, most=WHOLE, history=nullable(TEXT), ratio=NUMBER, reserved_hours=NUMBER),
        first_ms=nullable(WHOLE), last_ms=nullable(WHOLE), step_ms=WHOLE, topics=_TABLES, rates=_TABLES, sizes=_TABLES,
        queues=_TABLES, queue_count=WHOLE, keys=_TABLES, key_count=WHOLE, groups=nullable(_TABLES), waiting=_TABLES,
        lag=_TABLES, growth=_TABLES, disk_topics=_TABLES, forecasts=_TABLES,
    ),
    "pipeline dlq show": record(rows=array(OBJECT)),
    "pipeline dlq export": record(letters=WHOLE, folder=TEXT, format=TEXT),
    "pipeline dlq redrive": record(letters=maybe(WHOLE), sent=maybe(WHOLE), sentBefore=WHOLE),
    "pipeline deliver": record(
        application=TEXT, batch=WHOLE, coordinator=TEXT, rows=maybe(WHOLE), beganMs=maybe(WHOLE), query=maybe(TEXT),
        queryRun=maybe(TEXT),
    ),
}  # fmt: skip
#: Commands that print one value a line.
LINES: Final = frozenset({"consume", "tail", "store messages"})


def schema_of(command: str) -> Schema:
    """Return the whole schema of a command's output, or of each line of it."""
    what = "Each line of the output" if command in LINES else "The output"
    head = {"$schema": _DIALECT, "title": f"maxq {command} --json", "description": f"{what}."}
    return head | SCHEMAS[command]
