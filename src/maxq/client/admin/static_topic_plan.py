"""Plans for static topics: which broker should lead which global queue, and the mappings for it. Pure.

Source:
    remoting/protocol/statictopic/TopicQueueMappingUtils.java (createTopicConfigMapping, remappingStaticTopic).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from maxq.errors import ClientError
from maxq.protocol.body.static_topic import GLOBAL_SCOPE, LogicQueueMappingItem, TopicQueueMappingDetail
from maxq.protocol.body.topic_config import TopicConfig

#: Logic offsets of a new item begin at a multiple of this, behind the end of the old one.
BLOCK_SEQ_SIZE = 10_000


@dataclass(slots=True)
class BrokerPart:
    """The part of a static topic that one broker has."""

    config: TopicConfig
    mapping: TopicQueueMappingDetail

    def add_queue(self) -> int:
        """Add one more physical queue, and return its id."""
        self.config.read_queue_nums += 1
        self.config.write_queue_nums += 1
        return self.config.write_queue_nums - 1


@dataclass(slots=True)
class Plan:
    """The parts of a static topic as they shall become.

    Attributes:
        parts: by broker name.
        map_in, map_out: brokers that get queues from others, and that give some.
    """

    topic: str
    parts: dict[str, BrokerPart]
    map_in: set[str] = field(default_factory=set)
    map_out: set[str] = field(default_factory=set)


def leaders(parts: Mapping[str, BrokerPart]) -> dict[int, str]:
    """Return the broker that leads each global queue.

    Raises:
        ClientError: the parts contradict each other.
    """
    check_one_topic(parts)
    if len({(part.mapping.epoch, part.mapping.total_queues, part.mapping.scope) for part in parts.values()}) > 1:
        raise ClientError("the brokers' mappings differ in epoch, scope or number of queues: repeat the last command")
    found: dict[int, str] = {}
    for name, part in parts.items():
        for global_id, items in part.mapping.hosted_queues.items():
            if items and items[-1].bname == name:
                if global_id in found:
                    raise ClientError(f"queue {global_id} is led by {found[global_id]} and by {name}")
                found[global_id] = name
    return found


def check_one_topic(parts: Mapping[str, BrokerPart]) -> None:
    """Check that no broker has queues of an older topic of the name, which was deleted while that broker was away.

    Raises:
        ClientError: some have.
    """
    newest = max((part.mapping.made_at for part in parts.values()), default=-1)
    times: dict[tuple[int, int], int] = {}  # (global queue, generation) → time
    for part in parts.values():
        for global_id, items in part.mapping.hosted_queues.items():
            for item in items:
                times[global_id, item.gen] = max(times.get((global_id, item.gen), -1), item.time_of_start)
    for name, part in sorted(parts.items()):
        made_at = {
            (item.time_of_start, newest if item.time_of_start >= 0 else times[global_id, item.gen])
            for global_id, items in part.mapping.hosted_queues.items()
            for item in items
        }
        if any(own != real for own, real in made_at):
            topic = part.config.topic_name
            raise ClientError(
                f"{name} still has an older topic of the name {topic}, which was deleted while that broker was away: "
                f"delete it there (`maxq admin deleteTopic -t {topic} -b` and its address), and repeat this command"
            )


def plan_rest(topic: str, parts: dict[str, BrokerPart], *, now_ms: int) -> Plan | None:
    """Plan the rest of a command that ended in the middle. None: the parts agree.

    A queue is led by whoever has the longest chain of it; a place that one broker knows is the place.

    Args:
        parts: what there is of the topic; changed.

    Raises:
        ClientError: the parts contradict each other.
    """
    check_one_topic(parts)
    if len({part.mapping.scope for part in parts.values()}) > 1:
        raise ClientError("the brokers' mappings differ in scope")
    chains = _longest_chains(parts)
    plan = Plan(topic, parts)
    lags = len({(part.mapping.epoch, part.mapping.total_queues) for part in parts.values()}) > 1
    for name, part in parts.items():
        for global_id, items in part.mapping.hosted_queues.items():
            # other brokers may still list items that have expired
            longest = [item for item in chains[global_id] if item.gen >= items[0].gen]
            if items[-1].bname == name or any(not item.is_decided for item in items):
                lags = lags or items != longest
                part.mapping.hosted_queues[global_id] = longest
    for longest in chains.values():
        if not longest[-1].is_decided:
            lags = True
            plan.map_in.add(longest[-1].bname)
            plan.map_out.add(longest[-2].bname)
    if not lags:
        return None
    _stamp(parts, _next_epoch(parts, now_ms), total_queues(parts))
    return plan


def _longest_chains(parts: Mapping[str, BrokerPart]) -> dict[int, list[LogicQueueMappingItem]]:
    """Return the longest chain by global queue, merged from all brokers, as new lists of new items."""
    known: dict[int, dict[int, LogicQueueMappingItem]] = {}
    for part in parts.values():
        for global_id, items in part.mapping.hosted_queues.items():
            chain = known.setdefault(global_id, {})
            for item in items:
                same = chain.setdefault(item.gen, replace(item))
                if (same.bname, same.queue_id) != (item.bname, item.queue_id):
                    raise ClientError(f"queue {global_id} is led by {same.bname} and by {item.bname}")
                same.logic_offset = max(same.logic_offset, item.logic_offset)
                same.end_offset = max(same.end_offset, item.end_offset)
    return {global_id: [chain[gen] for gen in sorted(chain)] for global_id, chain in known.items()}


def total_queues(parts: Mapping[str, BrokerPart]) -> int:
    """Return the number of queues that a topic has, as the newest mapping says; 0 if there is none.

    A queue with this number or a greater one belongs to a command that ended in the middle: clients do not see it.
    """
    return max(((part.mapping.epoch, part.mapping.total_queues) for part in parts.values()), default=(0, 0))[1]


def plan_queues(
    topic: str, total: int, targets: Iterable[str], parts: dict[str, BrokerPart], *, now_ms: int, force: bool = False
) -> Plan:
    """Plan a static topic of `total` queues, new or grown, evenly on the target brokers.

    Args:
        targets: names of brokers; all that have queues of the topic must be among them.
        parts: by broker name, the queues that the topic has there already; the plan's changes are made in it.
        now_ms: wall time, from which the plan's epoch is made.
        force: queues that none of the brokers leads begin anew.

    Raises:
        ClientError: the topic has `total` queues or more, has queues on a broker that is not a target, or has some
            that none of the brokers leads.
    """
    names = sorted(set(targets))
    led = leaders(parts)
    if missing := sorted({name for name, part in parts.items() if part.mapping.hosted_queues} - set(names)):
        raise ClientError(f"the topic is on {', '.join(missing)} too: name all its brokers")
    unled = _check_all_led(topic, parts, led, force=force)
    known = total_queues(parts)
    if total < known or (total == known and not unled):
        raise ClientError(f"the topic has {known} queues: a static topic can only get more, {total} were asked for")
    if total < (begun := max(led, default=-1) + 1):
        raise ClientError(
            f"a command that ended in the middle was to give the topic more queues: ask for {begun} at least, "
            f"{total} were asked for"
        )
    load = {name: sum(leader == name for leader in led.values()) for name in names}
    epoch = _next_epoch(parts, now_ms)
    made_at = max(part.mapping.made_at for part in parts.values()) if led else epoch
    for global_id in range(total):
        if global_id in led:
            continue
        name = min(names, key=lambda candidate: (load[candidate], candidate))
        load[name] += 1
        part = parts.setdefault(name, empty_part(topic, name))
        part.mapping.hosted_queues[global_id] = [
            LogicQueueMappingItem(0, part.add_queue(), name, time_of_start=made_at)
        ]
    _stamp(parts, epoch, total)
    return Plan(topic, parts)


def _check_all_led(topic: str, parts: Mapping[str, BrokerPart], led: Mapping[int, str], *, force: bool) -> list[int]:
    """Return the queues that none of the brokers leads: a broker leads them that is away. With `force` there may be
    some."""
    total = total_queues(parts)
    unled = [global_id for global_id in range(total) if global_id not in led]
    if unled and not force:
        numbers = ", ".join(map(str, unled))
        raise ClientError(
            f"of the {total} queues of topic {topic} no broker that has a master now leads {numbers}: start the one "
            "that does, and repeat this command. With force it goes on without them; updateStaticTopic then makes "
            "them anew, and their messages are lost"
        )
    return unled


def plan_remapping(
    topic: str, targets: Iterable[str], parts: dict[str, BrokerPart], *, now_ms: int, force: bool = False
) -> Plan:
    """Plan to place all queues of a static topic on the target brokers, evenly and with as few moves as possible.

    Args:
        parts: what there is of it; changed.
        force: queues that none of the brokers leads stay where they are.

    Raises:
        ClientError: the topic is not static, its parts contradict each other, or none of the brokers leads some of its
            queues.
    """
    names = sorted(set(targets))
    led = leaders(parts)
    if not led:
        raise ClientError(f"topic {topic} is not static: make it with updateStaticTopic")
    _check_all_led(topic, parts, led, force=force)
    share, more = divmod(len(led), len(names))
    now = {name: sum(leader == name for leader in led.values()) for name in names}
    by_load = sorted(names, key=lambda name: (-now[name], name))  # of equal loads, the first name keeps the extra queue
    room = {name: share + (place < more) for place, name in enumerate(by_load)}
    moving = []
    for global_id, leader in sorted(led.items()):
        if room.get(leader, 0) > 0:
            room[leader] -= 1
        else:
            moving.append(global_id)
    plan = Plan(topic, parts)
    for global_id in moving:
        name = next(name for name in names if room[name] > 0)
        room[name] -= 1
        _move(plan, global_id, led[global_id], name)
    _stamp(parts, _next_epoch(parts, now_ms), total_queues(parts))
    return plan


def _move(plan: Plan, global_id: int, source: str, target: str) -> None:
    part = plan.parts.setdefault(target, empty_part(plan.topic, target))
    mapping = plan.parts[source].mapping
    items = list(mapping.hosted_queues[global_id])
    items.append(LogicQueueMappingItem(items[-1].gen + 1, part.add_queue(), target, -1, time_of_start=mapping.made_at))
    part.mapping.hosted_queues[global_id] = items
    mapping.hosted_queues[global_id] = items  # the same items: both learn their places
    plan.map_in.add(target)
    plan.map_out.add(source)


def empty_part(topic: str, broker_name: str) -> BrokerPart:
    """Make an empty part for a broker that has none of the topic yet."""
    return BrokerPart(TopicConfig(topic, 0, 0), TopicQueueMappingDetail(topic, GLOBAL_SCOPE, 0, broker_name))


def _next_epoch(parts: Mapping[str, BrokerPart], now_ms: int) -> int:
    return max([now_ms, *(part.mapping.epoch + 1 for part in parts.values())])


def _stamp(parts: Mapping[str, BrokerPart], epoch: int, total: int) -> None:
    for part in parts.values():
        part.mapping.epoch, part.mapping.total_queues = epoch, total


def round_up(offset: int, block: int = BLOCK_SEQ_SIZE) -> int:
    """Return the start of a new item when the old one ends at `offset`: at least half a block behind it, because
    messages may still be on their way."""
    whole, rest = divmod(offset, block)
    return (whole + (1 if rest < block // 2 else 2)) * block
