"""BrokerGroupProcessor: what name servers and the group's other brokers tell this one (905, 906, 908).

Source:
    broker/processor/AdminBrokerProcessor.java notifyMinBrokerIdChange, updateBrokerHaInfo, resetMasterFlushOffset.
"""

from collections.abc import Mapping

from maxq.broker.failover.acting_master import ActingMasterService
from maxq.broker.failover.master_link import MasterLink
from maxq.broker.identity.broker_identity import BrokerAddress, SlaveSign
from maxq.broker.processors.support import RequestProcessor
from maxq.codes import RequestCode, ResponseCode
from maxq.protocol.body.route import MASTER_ID
from maxq.protocol.frame.header_fields import HeaderFields
from maxq.protocol.frame.remoting_command import RemotingCommand
from maxq.protocol.header.admin import (
    ExchangeHAInfoHeader,
    NotifyMinBrokerIdChangeRequestHeader,
    ResetMasterFlushOffsetHeader,
)
from maxq.remoting.connection import Connection, Processor


class BrokerGroupProcessor(RequestProcessor):
    """Answers the requests among the brokers of a group (see the module)."""

    def __init__(
        self,
        own: BrokerAddress,
        acting: ActingMasterService,
        link: MasterLink,
    ) -> None:
        self._own = own
        self._acting = acting
        self._ha = link.ha
        self._sync = link.sync
        self._flush_offset = link.flush_offset

    def routes(self) -> Mapping[int, Processor]:
        return {
            RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: self.notify_min_broker_id_change,
            RequestCode.EXCHANGE_BROKER_HA_INFO: self.exchange_broker_ha_info,
            RequestCode.RESET_MASTER_FLUSH_OFFSET: self.reset_master_flush_offset,
        }

    async def notify_min_broker_id_change(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle request 905: a name server's notice of a new smallest id."""
        header = NotifyMinBrokerIdChangeRequestHeader.decode(request.ext)
        if header.min_broker_id is not None and header.min_broker_addr:
            await self._acting.on_min_broker_id_changed(
                header.min_broker_id, header.min_broker_addr, header.ha_broker_addr
            )
        return request.reply()

    def exchange_broker_ha_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle request 906. With an address, a master tells its slave where to copy from; without one, a slave asks
        its master, which answers unless it is shutting down, and says whether it is active (SlaveSign); or it asks the
        master to stand back. A slave may ask another slave in the same way, which answers with the name of its
        group."""
        told = ExchangeHAInfoHeader.decode(request.ext)
        if self._own.broker_id == MASTER_ID:
            if told.master_ha_address:  # a master copies from nobody, whatever it is told
                return request.reply()
            if self._acting.is_ending:
                return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "this master ends, its slave may act")
            slave = HeaderFields(request.ext)
            if slave.opt_str(SlaveSign.BROKER_NAME) not in (None, self._own.broker_name):
                return request.reply()  # a slave of another group, whose master once had this address
            slave_id, address = slave.opt_int(SlaveSign.ID), slave.opt_str(SlaveSign.ADDRESS)
            if slave.opt_bool(SlaveSign.STAND_BACK):
                stands_back = self._acting.stand_back(slave_id, address)
                return request.reply(ext={SlaveSign.STANDS_BACK: str(stands_back).lower()})
            acts, stamp = slave.opt_bool(SlaveSign.ACTS), slave.opt_str(SlaveSign.STAMP)
            self._acting.hear_slave(slave_id, address, acts=acts, stamp=stamp)
            info = ExchangeHAInfoHeader(self._own.ha_address, self._flush_offset.own, self._own.address)
            signs = {
                SlaveSign.IS_ACTIVE: str(self._acting.is_active).lower(),
                SlaveSign.LOG_MARK: self._ha.log_mark(),
                SlaveSign.STAMP: self._acting.stamp(),
            }
            return request.reply(ext={**info.encode(), **signs})
        if told.master_ha_address:
            self._ha.update_master_ha_address(told.master_ha_address)
            if told.master_address:
                self._sync.set_master_address(told.master_address)
            self._flush_offset.adopt(told.master_flush_offset)
            return request.reply()
        if self._acting.is_ending:
            return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "this slave ends, another one may act")
        if self._acting.log_is_another and not self._acting.is_acting_master:
            return request.reply(ResponseCode.SERVICE_NOT_AVAILABLE, "this slave's log is another, another one may act")
        is_slaves = SlaveSign.BROKER_NAME in request.ext
        return request.reply(ext={SlaveSign.BROKER_NAME: self._own.broker_name} if is_slaves else None)

    def reset_master_flush_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle request 908: set the flush offset of this slave's master. A master refuses it."""
        if self._own.broker_id != MASTER_ID:
            self._flush_offset.reset(ResetMasterFlushOffsetHeader.decode(request.ext).master_flush_offset)
        return request.reply()
