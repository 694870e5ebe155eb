"""The short options of mqadmin 5.5.0 (commands.md §1), command by command: a script's command line is accepted."""

import pytest
from typer.core import TyperOption

from maxq.cli.admin import ENTRIES, group

#: Letters as mqadmin has them; -h and -n are everywhere.
OPTIONS = {
    "updateTopic": "b c a t r w p o u s",
    "updateTopicList": "b c f",
    "deleteTopic": "t c",
    "updateTopicPerm": "b c t p",
    "topicRoute": "t l",
    "topicStatus": "t c",
    "topicClusterList": "t",
    "topicList": "c",
    "updateOrderConf": "t v m",
    "allocateMQ": "t i",
    "updateStaticTopic": "b c t",
    "remappingStaticTopic": "b c t",
    "updateSubGroup": "b c g s m d o q r p i w a",
    "updateSubGroupList": "b c f",
    "setConsumeMode": "b c t g m q",
    "deleteSubGroup": "b c g r",
    "consumerProgress": "g t s c",
    "consumerStatus": "g i b s",
    "getConsumerConfig": "g",
    "updateBrokerConfig": "b c a k v",
    "brokerStatus": "b c",
    "brokerConsumeStats": "b t l o",
    "cleanExpiredCQ": "b c",
    "deleteExpiredCommitLog": "b c",
    "cleanUnusedTopic": "b c",
    "getBrokerConfig": "b c",
    "queryMsgById": "t i g d s u f c",
    "queryMsgByKey": "t k b e m c p l",
    "queryMsgByUniqueKey": "i g d t a c s e",
    "queryMsgByOffset": "t b i o f r",
    "printMsg": "t c s b e d l",
    "printMsgByQueue": "t a i c s b e p d f",
    "sendMessage": "t p k c b i m",
    "consumeMessage": "t b i o g s e c",
    "cloneGroupOffset": "s d t o",
    "resetOffsetByTime": "g t s f b q o c",
    "skipAccumulatedMessage": "g t f c",
    "producerConnection": "g t",
    "consumerConnection": "g b",
    "producer": "b",
    "clusterList": "m i c",
    "updateKvConfig": "s k v",
    "deleteKvConfig": "s k",
    "wipeWritePerm": "b",
    "addWritePerm": "b",
    "getNamesrvConfig": "",
    "updateNamesrvConfig": "k v",
    "queryCq": "t q i c b g",
    "statsAll": "a t",
    "haStatus": "b c i",
    "sendMsgStatus": "b s c",
    "checkMsgSendRT": "t a s",
    "clusterRT": "a s c p m i",
    "dumpCompactionLog": "f",
    "queryMsgTraceById": "i t b e c",
    "switchTimerEngine": "b c e",
    "getColdDataFlowCtrInfo": "b c",
    "updateColdDataFlowCtrGroupConfig": "b c g v",
    "removeColdDataFlowCtrGroupConfig": "b c g",
    "setCommitLogReadAheadMode": "b c m",
    "exportMetadata": "c b f t g s",
    "exportConfigs": "c f",
    "exportMetrics": "c f",
    "exportPopRecord": "c b d",
    "rocksDBConfigToJson": "t p e j c b",
    "exportMetadataInRocksDB": "p t j",
    "checkRocksdbCqWriteProgress": "c t",
    "resetMasterFlushOffset": "b o",
    "getBrokerEpoch": "c b i",
    "getSyncStateSet": "a c b i",
    "getControllerMetaData": "a",
    "getControllerConfig": "a",
    "updateControllerConfig": "a k v",
    "electMaster": "a b c",
    "cleanBrokerMetadata": "a b c l",
    "addBroker": "c b",
    "removeBroker": "c b",
    "getBrokerLiteInfo": "b c d",
    "getParentTopicInfo": "p",
    "getLiteTopicInfo": "p l s",
    "getLiteClientInfo": "p g c s",
    "getLiteGroupInfo": "p g l k",
    "triggerLiteDispatch": "p g c b",
    "startMonitoring": "",
    "createUser": "c b u p t",
    "updateUser": "c b p t s u",
    "deleteUser": "c b u",
    "getUser": "b c u",
    "listUser": "b c f",
    "copyUser": "f t u",
    "createAcl": "c b s r a i d",
    "updateAcl": "c b s r a d i",
    "deleteAcl": "c b s r",
    "getAcl": "b c s",
    "listAcl": "b c s r",
    "copyAcl": "f t s",
}

#: mqadmin 5.5.0's commands that are not here.
PENDING: set[str] = set()

#: Not taken; docs/reference/command-line.md says so.
MISSING = {"queryMsgByKey": {"l"}}

#: Without a value; every other option has one.
FLAGS = {("topicRoute", "l"), ("topicList", "c"), ("consumerStatus", "s"), ("queryMsgByUniqueKey", "a"),
         ("clusterList", "m"), ("statsAll", "a"), ("exportMetadata", "t"), ("exportMetadata", "g"),
         ("exportMetadata", "s"), ("cleanBrokerMetadata", "l"), ("getBrokerLiteInfo", "d"), ("getLiteTopicInfo", "s"),
         ("getLiteClientInfo", "s")}  # fmt: skip


def short_options(name: str) -> dict[str, bool]:
    """Letter → is it a flag?"""
    command = group.get_command(None, name)
    assert command is not None
    return {
        text[1:]: option.is_flag
        for option in command.params
        if isinstance(option, TyperOption)
        for text in option.opts
        if len(text) == 2
    }


def test_every_command_of_mqadmin_is_there_by_its_name() -> None:
    assert len(OPTIONS) == 96
    assert set(OPTIONS) - set(ENTRIES) <= PENDING


@pytest.mark.parametrize("name", [name for name in OPTIONS if name in ENTRIES])
def test_mqadmins_short_options_are_taken_with_a_value_where_mqadmin_has_one(name: str) -> None:
    wanted = {letter: (name, letter) in FLAGS for letter in OPTIONS[name].split()}
    found = short_options(name)
    assert wanted.keys() - found.keys() == MISSING.get(name, set())
    assert {letter: found[letter] for letter in wanted if letter in found} == {
        letter: flag for letter, flag in wanted.items() if letter in found
    }
