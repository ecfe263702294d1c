"""Stand-alone mode of a box: no manager, no console.

This file only wires. Ref: docs/reference/boards.md, "Stand-alone"
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.csr import RegisterPort, connect_ports
from dxpu.fabric.receive.types import Refused
from dxpu.fabric.wire.format import NODE_UNASSIGNED

from .boot import BootCounter
from .listener import HelloListener
from .sequencer import SetUpSequencer, StandAloneState

__all__ = ["StandAlone"]


class StandAlone(wiring.Component):
    """Sets a box up for the first host that sends a HELLO.

    Consists of :class:`~.listener.HelloListener`, :class:`~.boot.BootCounter` and
    :class:`~.sequencer.SetUpSequencer`.

    Parameters
    ----------
    map : :class:`~dxpu.csr.AddressMap`
        Registers of the box proxy.
    slots : int
        Number of slots that are bound, from the first one on; the others are empty.
    paths, streams : int
        Numbers of paths and streams of the box proxy.
    waits : :class:`~.sequencer.Waits`

    Members
    -------
    bus : Out :class:`~dxpu.csr.RegisterPort`
        Registers of the proxy.
    refused : In :class:`~dxpu.fabric.receive.types.Refused`
        Frames that the proxy refuses.
    wanted
        Port of the listener.
    enable, again, state, host
        Ports of the sequencer.
    """

    def __init__(self, map, *, slots, paths, streams, waits):
        self._listener = HelloListener(paths=paths, streams=streams)
        self._sequencer = SetUpSequencer(map, slots=slots, streams=streams, waits=waits)
        super().__init__({
            "bus": Out(RegisterPort()), "refused": In(Refused),
            "wanted": In(12, init=NODE_UNASSIGNED), "enable": In(1), "again": In(1),
            "state": Out(StandAloneState), "host": Out(12),
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.listener = listener = self._listener
        m.submodules.boot = boot = BootCounter()
        m.submodules.sequencer = sequencer = self._sequencer
        connect_ports(m, sequencer.bus, wiring.flipped(self.bus))
        m.d.comb += [
            listener.refused.eq(self.refused), listener.wanted.eq(self.wanted),
            sequencer.heard.eq(listener.heard), sequencer.who.eq(listener.who),
            sequencer.enable.eq(self.enable), sequencer.again.eq(self.again),
            sequencer.boot.eq(boot.boot), boot.take.eq(sequencer.boot_take),
            self.state.eq(sequencer.state), self.host.eq(sequencer.host),
        ]
        return m
