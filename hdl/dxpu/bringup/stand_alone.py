"""Stand-alone mode of a box: no manager, no console.

This file only wires. Ref: docs/reference/boards.md, "Stand-alone"
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.csr import RegisterPort, connect_ports
from dxpu.fabric.opening.types import KnockPort
from dxpu.fabric.receive.types import Refused
from dxpu.fabric.wire.format import NODE_UNASSIGNED, SecurityMode

from .boot import BootCounter
from .knock import KnockJudge
from .listener import HelloListener
from .sequencer import SetUpSequencer, StandAloneState, Takes

__all__ = ["StandAlone"]


class StandAlone(wiring.Component):
    """Sets a box up for the first host that sends a HELLO, or, if there is a key, for the first one
    that opens a session under it.

    Consists of :class:`~.listener.HelloListener`, :class:`~.boot.BootCounter`,
    :class:`~.sequencer.SetUpSequencer` and, with ``keys``, :class:`~.knock.KnockJudge`.

    Parameters
    ----------
    map : :class:`~dxpu.csr.AddressMap`
        Registers of the box proxy.
    slots : int
        Number of slots that are bound, from the first one on; the others are empty.
    paths, streams : int
        Numbers of paths and streams of the box proxy.
    waits : :class:`~.sequencer.Waits`
    keys : bool
        The registers have keys, and the box has a ``knock``.

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
    takes : :class:`~.sequencer.Takes`
        With ``keys``.
    column, key_column : 2, 32
        With ``keys``: bytes 4n to 4n + 3 of the key, the first one in the lowest bits, in the same
        cycle.
    knock : Out :class:`~dxpu.fabric.opening.types.KnockPort`
        With ``keys``.
    """

    def __init__(self, map, *, slots, paths, streams, waits, keys=False):
        self._listener = HelloListener(paths=paths, streams=streams)
        self._sequencer = SetUpSequencer(map, slots=slots, streams=streams, waits=waits)
        super().__init__({
            "bus": Out(RegisterPort()), "refused": In(Refused),
            "wanted": In(12, init=NODE_UNASSIGNED), "enable": In(1), "again": In(1),
            "state": Out(StandAloneState), "host": Out(12),
            **({"takes": In(Takes), "column": Out(2), "key_column": In(32),
                "knock": Out(KnockPort())} if keys else {}),
        })
        self._keys = keys

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
        if self._keys:
            self._judge(m, listener, sequencer)
        return m

    def _judge(self, m, listener, sequencer):
        """A HELLO under the key is judged before the sequencer hears it."""
        m.submodules.judge = judge = KnockJudge()
        needs, listens = Signal(), Signal()
        m.d.comb += [
            needs.eq(self.takes == Takes.KEY),
            listens.eq((sequencer.state == StandAloneState.LISTENS) & self.knock.free),
            listener.mode.eq(Mux(needs, SecurityMode.KEYED, SecurityMode.NONE)),
            judge.greets.eq(listener.greets & needs & listens), judge.heard.eq(listener.heard),
            judge.who.eq(listener.who), judge.key_column.eq(self.key_column),
            sequencer.takes.eq(self.takes), sequencer.key_column.eq(self.key_column),
            self.column.eq(sequencer.column),
        ]
        wiring.connect(m, judge.body_look, wiring.flipped(self.knock.body_look))
        wiring.connect(m, judge.cmac, wiring.flipped(self.knock.cmac))
        with m.If(needs):
            m.d.comb += [sequencer.heard.eq(judge.knocked), sequencer.who.eq(judge.knocker)]
            # The sequencer needs the key to write it, after a HELLO was judged.
            with m.If(listens):
                m.d.comb += self.column.eq(judge.column)
