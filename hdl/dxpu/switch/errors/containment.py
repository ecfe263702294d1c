"""Downstream Port Containment: which slots are cut off at once, and what is said in their place.

Ref: PCIe Base 5.0, 2.9.3, 3.2.1 (Surprise Down), 6.2.10
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.mapping.types import ConfigUpdate
from dxpu.switch.config.identity import Identity, SlotOptions
from dxpu.switch.config.port_map import DOWNSTREAM, function_map
from dxpu.switch.types import PortState

from .types import ContainmentTrigger, StatusRegisters, TriggerReason

__all__ = ["ContainmentStatus", "LinkGuard"]


class LinkGuard(wiring.Component):
    """Finds links that are lost by surprise, and keeps contained slots without a link.

    A link that goes while nobody has taken it away is a Surprise Down error. Not so if software or
    a reset has closed it, if it is contained, in an orderly removal, and after PME_Turn_Off was
    sent to the slot, until the link is up again.

    Combinational, but for what is remembered of PME_Turn_Off.

    Parameters
    ----------
    ports : int
        Downstream ports.

    Members
    -------
    states : array of :class:`PortState`
        Of the downstream ports.
    link_active : ``ports``
        As software sees it.
    works : ``ports``
        The GPU is there and its link is up.
    open : ``ports``
        Neither software nor containment closes the port.
    hold : 1
        The functions are in reset.
    turned_off : 1
        Pulse: PME_Turn_Off goes to all slots with a link.
    orderly : ``ports``
        Level: what happens to the link now is agreed upon.
    surprise : ``ports``
        Strobes: Surprise Down.
    contain : ``ports``
        Strobes: that triggers containment.
    closed : ``ports``
        The port has no link.
    abort : ``ports``
        Completions in place of the slot say Completer Abort, else Unsupported Request.
    """

    def __init__(self, ports):
        self._ports = ports
        super().__init__({
            "states": In(PortState).array(ports),
            "link_active": In(ports),
            "works": In(ports),
            "open": In(ports),
            "hold": In(1),
            "turned_off": In(1),
            "orderly": In(ports),
            "surprise": Out(ports),
            "contain": Out(ports),
            "closed": Out(ports),
            "abort": Out(ports),
        })

    def elaborate(self, platform):
        m = Module()
        told, triggers = (Signal(self._ports, name=name) for name in ("told", "triggers"))
        m.d.comb += [
            self.surprise.eq(self.link_active & ~self.works & self.open
                             & ~self.orderly & ~told & ~self.hold.replicate(self._ports)),
            *(triggers[n].eq(~state.surprise_masked & (
                (state.trigger == 2) | (state.trigger == 1) & state.surprise_fatal))
              for n, state in enumerate(self.states)),
            self.contain.eq(self.surprise & triggers),
            self.closed.eq(Cat(state.contained for state in self.states)),
            self.abort.eq(self.closed & ~Cat(state.refuse for state in self.states)),
        ]
        m.d.sync += told.eq((told | self.turned_off.replicate(self._ports)) & self.link_active)
        return m


class ContainmentStatus(wiring.Component):
    """DPC Status and Error Source ID of all ports.

    A port is contained from the cycle after a strobe on, unless it is already: then nothing
    changes. Of several strobes at a time the first in the order of the members says why. When the
    trigger has been ``announced``, DPC Interrupt Status is set, if enabled.

    Ref: PCIe Base 5.0, 6.2.10, 7.9.15.4, 7.9.15.5

    Parameters
    ----------
    ports : int
        Downstream ports.

    Members
    -------
    triggers : array of :class:`~.types.ContainmentTrigger`
    error : ``ports``
        Strobes: for an error of the port.
    software : ``ports``
        Strobes: for DPC Software Trigger.
    interrupt : ``ports``
        DPC Interrupt Enable.
    announce, announced : ``ports``
        Strobes: the port has become contained; that has been told.
    config : :class:`~dxpu.mapping.ConfigUpdate`
    status : :class:`~.types.StatusRegisters`
    contained, event : ``ports``
        DPC Trigger Status and Interrupt Status.
    """

    def __init__(self, ports):
        self._ports = ports
        super().__init__({
            "triggers": In(ContainmentTrigger).array(2),
            "error": In(ports),
            "software": In(ports),
            "interrupt": In(ports),
            "announce": Out(ports),
            "announced": In(ports),
            "config": In(ConfigUpdate),
            "status": In(StatusRegisters()),
            "contained": Out(ports),
            "event": Out(ports),
        })

    def elaborate(self, platform):
        m = Module()
        fmap = function_map(DOWNSTREAM, Identity(slot=SlotOptions(surprise=False, dpc=True)))
        place = {name: fmap.bit("DPC Status", name) for name in (
            "DPC Trigger Status", "DPC Trigger Reason", "DPC Interrupt Status",
            "DPC Trigger Reason Extension")}
        source_place = fmap.bit("DPC Error Source ID", "DPC Error Source ID")
        written = self.config.strobe & (self.config.register == fmap.dword("DPC Status"))
        for n in range(self._ports):
            reason, source = Signal(TriggerReason, name=f"reason{n}"), Signal(16, name=f"source{n}")
            contained, event, ones = self.contained[n], self.event[n], Signal(32, name=f"ones{n}")
            by = [trigger.strobe & (trigger.port == n) for trigger in self.triggers]
            m.d.comb += ones.eq(Mux(written & (self.config.function == n + 1),
                                    self.status.ones, 0))
            with m.If(ones[place["DPC Trigger Status"]]):
                m.d.sync += contained.eq(0)
            with m.If(ones[place["DPC Interrupt Status"]]):
                m.d.sync += event.eq(0)
            with m.If(self.announced[n] & self.interrupt[n]):
                m.d.sync += event.eq(1)
            with m.If(~contained & (Cat(by).any() | self.error[n] | self.software[n])):
                m.d.comb += self.announce[n].eq(1)
                m.d.sync += [contained.eq(1), source.eq(0)]
                with m.If(by[0]):
                    m.d.sync += [reason.eq(self.triggers[0].reason),
                                 source.eq(self.triggers[0].requester_id)]
                with m.Elif(by[1] | self.error[n]):
                    m.d.sync += reason.eq(TriggerReason.ERROR)
                with m.Else():
                    m.d.sync += reason.eq(TriggerReason.SOFTWARE)
            with m.If((self.status.function == n + 1)
                      & (self.status.register == fmap.dword("DPC Status"))):
                m.d.comb += self.status.value.eq(
                    contained << place["DPC Trigger Status"]
                    | Value.cast(reason) << place["DPC Trigger Reason"]
                    | event << place["DPC Interrupt Status"]
                    | (reason == TriggerReason.SOFTWARE) << place["DPC Trigger Reason Extension"]
                    | source << source_place)
        return m
