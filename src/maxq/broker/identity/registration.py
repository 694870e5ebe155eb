"""Keeping every name server informed: on change at once, and from time to time anyway.

Two brokers with the same name and id divide the messages between two logs, and readers miss those in the other log. So
a broker asks first who holds its name (`refuse_taken_name`), and looks again before each periodic registration.

A change registers the changed topics alone. A name server that missed one (unreachable, or restarted and now refusing
an incremental registration of a broker it does not know) gets what it missed with the next one, or the whole table. One
that fails, or closes its connection, is tried again every second until it knows this broker, for clients find no route
there meanwhile. A name server that fails or hangs never delays the others, nor a start, a shutdown, or a slave that
looks for its master: a request to all of them continues a moment after one has answered.

The deletion of a topic is reported to the name servers, too (216). The next periodic registration tells name servers
what they have missed: it lists all topics of the master, and says that there are no others. Java's name servers do not
know that.

Answers to requests that change topics wait for `changes_known`, so that a client finds a topic that it has just
created. Java waits for all name servers, up to registerBrokerTimeoutMills (24 s).

Source:
    broker/BrokerController.java (registerBrokerAll, registerIncrementBrokerData, registerSingleTopicAll).
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import field, replace
from typing import TypeVar

from maxq.access.access_control import with_remedy
from maxq.broker.identity.broker_identity import BrokerAddress
from maxq.broker.identity.outer_api import BrokerOuterApi, RegisterResult
from maxq.broker.tables.topic.topic_config_manager import TopicConfigManager
from maxq.config.broker_config import BrokerConfig
from maxq.errors import BrokerError, ConfigError, MaxQError, RemotingConnectError, RemotingSendError
from maxq.lazy_dataclass import dataclass
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.body.topic_config import PERM_READ, PERM_WRITE, TopicConfig, TopicQueueMappingInfo
from maxq.remoting.first_answers import SILENT_SECONDS, until_answered

log = logging.getLogger(__name__)

T = TypeVar("T")

_ASK_HOLDER_MS = 1_000
_KNOWN_SECONDS = 1.0  # longest wait of an answer for name servers none of which has accepted the change
_RETRY_MS = 100  # before a name server that failed is tried again; doubled each time
_RETRY_MS_UNREACHABLE = 1_000  # at most, while there is no connection, which costs nothing
_RETRY_MS_REFUSED = 10_000  # at most, while it does not take what was sent

_READ_WRITE = PERM_READ | PERM_WRITE


@dataclass(slots=True)
class _NameServer:
    """Changes that one name server has not been told yet."""

    address: str
    changed: dict[str, None] = field(default_factory=dict)  # topic names, in order
    everything: bool = True  # the whole table must be sent: the first time, and after an increment was refused
    # the name server may still list topics that were deleted since the whole table was sent
    knows_deleted: bool = False
    registered: bool = False
    is_failing: bool = False
    retry_ms: int = _RETRY_MS
    retry: asyncio.Task[None] | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_awaited: bool = False  # somebody waits for the lock in order to register

    @property
    def owes(self) -> bool:
        """Whether there is a change that it may not have taken yet."""
        return self.everything or bool(self.changed) or self.lock.locked()


class BrokerRegistration:
    """Registers one broker with all its name servers.

    Attributes:
        other_holder: the address of another living broker with this broker's name and id, as far as the last periodic
            registration found out; empty if there is none.
    """

    def __init__(
        self,
        api: BrokerOuterApi,
        topics: TopicConfigManager,
        broker: BrokerAddress,
        *,
        config: Callable[[], BrokerConfig],
        name_servers: Callable[[], list[str]],
        mappings: Callable[[Iterable[str]], dict[str, TopicQueueMappingInfo]],
        is_elected: bool,
    ) -> None:
        """
        Args:
            config, name_servers: asked anew each time.
            mappings: says what name servers learn of those of these topics that are static.
            is_elected: the group elects who has this broker's name and id (DLedger), and two may have it for a moment.
        """
        self._api = api
        self._topics = topics
        self._broker = broker
        self._config = config
        self.name_servers = name_servers
        self._mappings = mappings
        self._on_result: Callable[[RegisterResult], None] = lambda result: None
        self._servers: dict[str, _NameServer] = {}
        self._running: set[asyncio.Task[object]] = set()
        self._stopped = False
        self._is_isolated = False
        self._is_elected = is_elected
        self._is_known = asyncio.Event()
        self.other_holder = ""

    @property
    def is_isolated(self) -> bool:
        """Whether this broker registers at no name server until its start-up synchronization has ended
        (BrokerPreOnlineService)."""
        return self._is_isolated

    def set_isolated(self, isolated: bool) -> None:
        """Set whether this broker is isolated. While it is, nothing is registered; changes made meanwhile go out with
        the next registration."""
        self._is_isolated = isolated

    def set_result_listener(self, listener: Callable[[RegisterResult], None]) -> None:
        """Set the listener that is called with each answer to a registration: a slave learns from it where its master
        is."""
        self._on_result = listener

    async def is_outdated(self, name_server: str, timeout_ms: int) -> bool:
        """Ask a name server whether its copy of our topics differs (322); the request is a heartbeat, too."""
        return await self._api.needs_registration(
            name_server, self._broker, self._topics.data_version, timeout_ms=timeout_ms
        )

    @property
    def registered_with(self) -> list[str]:
        """The name servers that have accepted a registration of this broker."""
        return [server.address for server in self._servers.values() if server.registered]

    @property
    def silent_servers(self) -> list[str]:
        """The name servers that have not accepted a registration of this broker yet."""
        return [server.address for server in self._servers.values() if not server.registered]

    async def known(self) -> None:
        """Wait until one name server knows this broker, and a moment longer for the others."""
        await self._is_known.wait()
        await asyncio.sleep(SILENT_SECONDS)

    def topics_changed(self, changed: Iterable[TopicConfig], deleted: Iterable[str] = ()) -> None:
        """Send these topics to every name server now; returns at once. Deleted ones are left out of the next periodic
        registration."""
        names = [topic.topic_name for topic in changed]
        if deleted:
            for server in self._servers.values():
                server.knows_deleted = True
        if not names or self._stopped:
            return
        for server in self._current_servers():
            server.changed.update(dict.fromkeys(names))
            self._run(self._register(server))

    def register_all(self) -> None:
        """Send the whole registration to every name server now, because a permission changed; returns at once."""
        if self._stopped:
            return
        for server in self._current_servers():
            server.everything = True
            self._run(self._register(server))

    async def changes_known(self) -> None:
        """Wait until each name server has taken the changes so far, or has failed: a moment once one has taken them,
        and a second at most, because name servers may hang. An isolated broker does not wait."""
        servers = self._servers.values()
        if self._stopped or self._is_isolated or not any(server.owes for server in servers):
            return
        asked = [self._run(self._up_to_date(server)) for server in servers]
        try:
            async with asyncio.timeout(_KNOWN_SECONDS):
                await until_answered(asked)
        except TimeoutError:
            log.debug("no name server has taken what changed within %g s", _KNOWN_SECONDS)
        finally:
            for task in asked:
                if not task.cancel() and not task.cancelled():
                    task.exception()  # marks the exception as retrieved; it has been logged

    async def _up_to_date(self, server: _NameServer) -> None:
        """Wait for the registrations with one name server that have begun: its lock is given in the order in which it
        was asked for.

        Raises:
            MaxQError: the last one failed.
        """
        async with server.lock:
            if server.is_failing:
                raise MaxQError(f"name server {server.address} has not taken the changes")

    async def register_now(self) -> None:
        """Register everything with all name servers in parallel (the periodic registration). When one name server has
        answered, the others are not waited for, because one may hang. Failures are logged, not raised."""
        force = self._config().force_register
        servers = self._current_servers()
        for server in servers:
            server.everything = server.everything or force or server.knows_deleted
        holders = await until_answered([self._run(self._look_and_register(server)) for server in servers])
        if not self._stopped:
            self._tell_other_holder(next(filter(None, holders), ""))

    async def refuse_taken_name(self) -> None:
        """Refuse to start if another broker has this broker's name and id. Once a name server has answered, silent ones
        are not waited for.

        Raises:
            ConfigError: another broker that answers has this broker's name and id.
        """
        asked = [self._run(self._holder_at(server.address)) for server in self._current_servers()]
        try:
            holders = await until_answered(asked)
        finally:
            for task in asked:
                task.cancel()
        others = await asyncio.gather(*(self._if_called(holder) for holder in dict.fromkeys(holders)))
        for other in filter(None, others):
            broker = self._broker
            raise ConfigError(
                f"brokerName={broker.broker_name}, brokerId={broker.broker_id}: the broker at {other} has this name "
                "and id, and it answers. Two of them would divide the messages between two logs. Stop that one, or "
                "give this one another brokerName, or as its slave another brokerId"
            )

    async def _look_and_register(self, server: _NameServer) -> str:
        """Return which other broker has this broker's name and id there; it is asked before this broker's registration
        replaces that one."""
        holder = "" if self._is_isolated else await self._other_holder_at(server.address)
        await self._register(server, ask_first=True)
        return holder

    def _tell_other_holder(self, other: str) -> None:
        broker = self._broker
        if other and other != self.other_holder:
            log.error(
                "the broker at %s has this broker's name and id, too (%s, %d): messages go to one or the other, and "
                "readers miss some. Stop one of the two, and give it another brokerName or brokerId",
                other, broker.broker_name, broker.broker_id,
            )  # fmt: skip
        elif self.other_holder and not other:
            log.warning("the broker at %s no longer has this broker's name and id", self.other_holder)
        self.other_holder = other

    async def _other_holder_at(self, name_server: str) -> str:
        try:
            return await self._if_called(await self._holder_at(name_server))
        except MaxQError as error:
            log.debug("name server %s does not say who else has this broker's name: %s", name_server, error)
            return ""

    async def _holder_at(self, name_server: str) -> str:
        """Return the address of the broker that a name server knows by this broker's name and id."""
        if self._is_elected:
            return ""
        return await self._api.holder(name_server, self._broker, timeout_ms=_ASK_HOLDER_MS)

    async def _if_called(self, holder: str) -> str:
        """Return `holder` if a broker with this name and id answers there; None also if none answers."""
        if holder in ("", self._broker.address):
            return ""
        try:
            is_called = await self._api.is_called(holder, self._broker, timeout_ms=_ASK_HOLDER_MS)
        except MaxQError as error:
            log.debug("the broker at %s does not say what it is called: %s", holder, error)
            return ""
        return holder if is_called else ""

    async def ask_master(self) -> None:
        """Ask for the master's address. The answer to any registration contains it, and one of a single topic is small:
        a slave without its master may ask every few seconds."""
        topic = next(iter(self._topics.topic_config_table), None)
        await until_answered([self._run(self._ask_master_of(server, topic)) for server in self._current_servers()])

    async def _ask_master_of(self, server: _NameServer, topic: str | None) -> None:
        if server.lock.locked():
            return  # a registration is under way and brings the answer
        if not server.registered or topic is None:
            await self._register(server)
        else:
            await self._repeat(server, topic)

    def connection_lost(self, address: str) -> None:
        """Note that the connection to a name server broke: a name server that has ended forgets this broker."""
        server = self._servers.get(address)
        if server is not None and server.registered:
            server.everything = True
            self._try_again(server)

    def _try_again(self, server: _NameServer) -> None:
        if self._stopped or server.retry is not None:
            return

        async def wait_and_register() -> None:
            await asyncio.sleep(server.retry_ms / 1000)
            server.retry = None  # a failure from here on schedules the next retry
            if self._servers.get(server.address) is server:
                await self._register(server)

        server.retry = self._run(wait_and_register())

    async def _repeat(self, server: _NameServer, topic: str) -> None:
        async with server.lock:
            if self._stopped or self._is_isolated:
                return
            try:
                await self._send(server, {topic: self._topics.topic_config_table[topic]}, self._config())
            except BrokerError:
                server.everything = True  # it was restarted and knows nothing of this broker
            except MaxQError as error:
                log.debug("name server %s was not asked for the master: %s", server.address, error)
        if server.everything:
            await self._register(server)

    async def withdraw(self) -> None:
        """Become isolated and unregister from all name servers, while this broker goes on. Failures are logged: a name
        server that is not told forgets a broker that is silent."""
        self._is_isolated = True
        await self._leave()

    async def unregister(self) -> None:
        """Unregister from all name servers; the first step of a shutdown."""
        self._stopped = True
        for task in list(self._running):
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        await self._leave()

    async def _leave(self) -> None:
        leaving = {
            server.address: self._run(self._unregister_at(server))
            for server in self._servers.values()
            if server.registered or server.lock.locked()
        }
        await until_answered(leaving.values())
        for address, task in leaving.items():
            self._servers[address].registered, self._servers[address].everything = False, True
            # a task that could still be cancelled has had no answer
            why = "no answer" if task.cancel() else task.exception()
            if why is not None:
                log.warning("name server %s did not confirm that this broker is leaving: %s", address, why)

    async def _unregister_at(self, server: _NameServer) -> None:
        async with server.lock:  # a registration that is under way ends first
            await self._api.unregister_broker(server.address, self._broker)

    # ---- one name server --------------------------------------------------------------------------------------

    def _current_servers(self) -> list[_NameServer]:
        addresses = self.name_servers()
        for gone in [address for address in self._servers if address not in addresses]:
            del self._servers[gone]
        for address in addresses:
            if address not in self._servers:
                self._servers[address] = _NameServer(address)
        return list(self._servers.values())

    def _run(self, work: Coroutine[object, object, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def _register(self, server: _NameServer, ask_first: bool = False) -> None:
        """Bring one name server up to date. Registrations with one name server never overtake each other; while one is
        under way a single further one waits, which carries all changes that come meanwhile."""
        if server.is_awaited:
            return
        server.is_awaited = True
        try:
            await server.lock.acquire()
        finally:
            server.is_awaited = False
        try:
            if self._stopped or self._is_isolated:
                return
            try:
                await self._bring_up_to_date(server, ask_first)
            except MaxQError as error:
                text = "registration with name server %s failed and is tried again and again: %s"
                level = logging.DEBUG if server.is_failing else logging.WARNING
                log.log(level, text, server.address, with_remedy(error))
                server.is_failing = True
                self._try_again(server)
                is_reached = not isinstance(error, (RemotingConnectError, RemotingSendError))
                most_ms = _RETRY_MS_REFUSED if is_reached else _RETRY_MS_UNREACHABLE
                server.retry_ms = min(2 * server.retry_ms, most_ms)
            else:
                if server.is_failing:
                    log.warning("registration with name server %s succeeds again", server.address)
                server.is_failing, server.retry_ms = False, _RETRY_MS
        finally:
            server.lock.release()

    async def _bring_up_to_date(self, server: _NameServer, ask_first: bool) -> None:
        config = self._config()
        if ask_first and not server.everything and not server.changed:
            server.everything = await self._api.needs_registration(
                server.address, self._broker, self._topics.data_version, timeout_ms=config.register_broker_timeout_mills
            )
        if not server.everything and server.changed:
            try:
                await self._register_changed(server, config)
            except BrokerError as error:
                # A name server that was restarted takes no increment: it would make a broker of one topic.
                log.info("name server %s refused an incremental registration (%s): sending all", server.address, error)
                server.everything = True
        if server.everything:
            await self._register_everything(server, config)

    async def _register_changed(self, server: _NameServer, config: BrokerConfig) -> None:
        names = server.changed
        server.changed = {}  # what changes from here on needs another round
        table = self._topics.topic_config_table
        topics = {name: table[name] for name in names if name in table}
        try:
            if config.enable_single_topic_register and len(topics) == 1 and not self._mappings(topics):
                (topic,) = self._with_broker_permission(topics, config).values()
                await self._api.register_topic(
                    server.address, self._broker, topic, timeout_ms=config.register_broker_timeout_mills
                )
            elif topics:
                await self._send(server, topics, config)
        except BaseException:
            server.changed = {**names, **server.changed}
            raise

    async def _register_everything(self, server: _NameServer, config: BrokerConfig) -> None:
        table = dict(self._topics.topic_config_table)
        server.everything = server.knows_deleted = False
        server.changed.clear()
        try:
            for part in self._parts(table, config):
                is_whole = len(part) == len(table) and self._broker.broker_id == MASTER_ID
                result = await self._send(server, part, config, is_whole=is_whole)
        except BaseException:
            server.everything = True
            raise
        server.registered = True
        self._is_known.set()
        if result.order_topics:
            self._topics.update_order_topic_config(result.order_topics)

    async def _send(
        self, server: _NameServer, topics: Mapping[str, TopicConfig], config: BrokerConfig, *, is_whole: bool = False
    ) -> RegisterResult:
        result = await self._api.register_broker(
            server.address,
            self._broker,
            self._with_broker_permission(topics, config),
            self._topics.data_version.copy(),
            mappings=self._mappings(topics),
            timeout_ms=config.register_broker_timeout_mills,
            compressed=config.compressed_register,
            heartbeat_timeout_ms=(
                config.broker_not_active_timeout_millis if config.enable_slave_acting_master else None
            ),
            is_whole=is_whole,
        )
        self._on_result(result)
        return result

    def _parts(self, table: dict[str, TopicConfig], config: BrokerConfig) -> Iterable[dict[str, TopicConfig]]:
        """Split the table into parts of the maximum size. Each part needs a data version of its own, or name servers
        ignore it."""
        size = config.split_registration_size
        if not config.enable_split_registration or len(table) <= size:
            yield table
            return
        names = list(table)
        for start in range(0, len(names), size):
            if start:
                self._topics.update_data_version()
            # Never one topic alone: a name server that does not know the broker refuses that.
            stop = len(names) if len(names) - start - size == 1 else start + size
            yield {name: table[name] for name in names[start:stop]}
            if stop == len(names):
                return

    @staticmethod
    def _with_broker_permission(topics: Mapping[str, TopicConfig], config: BrokerConfig) -> dict[str, TopicConfig]:
        """Returns the topic with the permissions that both it and the broker allow."""
        permission = config.broker_permission
        if permission & _READ_WRITE == _READ_WRITE:
            return dict(topics)
        return {name: replace(topic, perm=topic.perm & permission) for name, topic in topics.items()}
