"""Status bits of the bridges that a TLP comes through."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.mapping.types import ConfigUpdate
from dxpu.switch.config.port_map import UPSTREAM, function_map
from dxpu.switch.types import PortState

from .types import ErrorKind, ErrorRecord, ErrorReport, StatusRegisters

__all__ = ["PathStatus"]


class _Bits(data.Struct):
    """The error bits of Status or of Secondary Status."""

    parity_of_data: 1  #: Master Data Parity Error
    aborted: 1         #: Signaled Target Abort
    target_abort: 1    #: Received Target Abort
    master_abort: 1    #: Received Master Abort
    system: 1          #: Signaled System Error; Received System Error in Secondary Status
    parity: 1          #: Detected Parity Error


#: Bits of the dword of Status, and of that of Secondary Status, in the order of the members.
_PLACES = (24, 27, 28, 29, 30, 31)


class _Word(data.Struct):
    primary: _Bits
    secondary: _Bits


class PathStatus(wiring.Component):
    """Status and Secondary Status of all ports, as far as TLPs of one direction set them.

    A record is first about the port at which its TLP came in, then about the one by which it leaves
    the switch, if it does. A bridge receives on one side and sends on the other: primary status
    bits are about the upper side, those of Secondary Status about the lower one. What is in the
    record of an error that a port reports goes on to ``o``.

    A record takes one cycle, or two with a port to leave by, and those in which ``o`` waits. The
    bits are set two cycles after that. Software that clears a bit costs one cycle more; it is
    cleared two cycles after the strobe. A bit that is set and cleared at a time stays set.

    Ref: PCIe Base 5.0, 6.2.6, 7.5.1.1.4, 7.5.1.3.7

    Parameters
    ----------
    ports : int
        Downstream ports.
    origin : :class:`~.types.ErrorOrigin`
        Where the TLPs come from.

    Members
    -------
    i : stream of :class:`~.types.ErrorRecord`
    o : stream of :class:`~.types.ErrorReport`
    states : array of :class:`PortState`
    config : :class:`~dxpu.mapping.ConfigUpdate`
    status : :class:`~.types.StatusRegisters`
    """

    def __init__(self, ports, *, origin):
        self._ports, self._origin = ports, origin
        super().__init__({
            "i": In(stream.Signature(ErrorRecord)),
            "o": Out(stream.Signature(ErrorReport)),
            "states": In(PortState).array(ports + 1),
            "config": In(ConfigUpdate),
            "status": In(StatusRegisters()),
        })

    def elaborate(self, platform):
        m = Module()
        note = self.i.p.note
        leaving, listed, reported = Signal(), Signal(), Signal()  # done of the record
        ready, pushes, last, told = (Signal() for _ in range(4))
        function, bits = Signal(6), Signal(_Word)

        # First stage: which bits of which port.
        m.d.comb += [
            function.eq(Mux(leaving, note.target, note.source)),
            pushes.eq(self.i.valid & ~listed & ready),
            last.eq(leaving | ~note.crossed),
            self.o.valid.eq(self.i.valid & (note.kind != ErrorKind.NONE) & ~reported),
            told.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq((listed | pushes & last) & told),
            self.o.p.origin.eq(self._origin),
            self.o.p.kind.eq(note.kind),
            self.o.p.advisory.eq(note.advisory),
            self.o.p.function.eq(note.reporter),
            *(self.o.p[k].eq(self.i.p[k]) for k in ("kept", "slot", "prefix_dwords")),
        ]
        with m.If(self.i.valid & self.i.ready):
            m.d.sync += [leaving.eq(0), listed.eq(0), reported.eq(0)]
        with m.Else():
            with m.If(pushes):
                m.d.sync += [leaving.eq(1), listed.eq(last)]
            with m.If(self.o.valid & self.o.ready):
                m.d.sync += reported.eq(1)
        self._bits(m, note, leaving, function, bits)

        # Second stage: read, modify, write.
        m.submodules.words = words = Memory(shape=_Word, depth=self._ports + 1, init=[])
        write = words.write_port()
        read, seen = words.read_port(domain="comb"), words.read_port(domain="comb")
        due, where, what = Signal(), Signal(6), Signal(_Word)
        registers, fmap = ("Status", "Secondary Status"), function_map(UPSTREAM)
        # What software writes is decoded in the cycle before: much waits for it.
        here, clears = Signal(len(registers)), Signal()
        written, ones = Signal(6), Signal(6)
        m.d.comb += clears.eq(here.any())
        m.d.sync += [
            here.eq(Cat(self.config.strobe & (self.config.register == fmap.dword(r))
                        for r in registers)),
            written.eq(self.config.function),
            ones.eq(Cat(self.status.ones[place] for place in _PLACES)
                    | self.status.reset.replicate(6)),
        ]
        cleared = Signal(_Word)
        m.d.comb += [
            cleared.primary.eq(Mux(here[0], ones, 0)),
            cleared.secondary.eq(Mux(here[1], ones, 0)),
            ready.eq(~due | ~clears),
            read.addr.eq(Mux(clears, written, where)),
            write.addr.eq(read.addr),
            write.data.eq(Mux(clears, Value.cast(read.data) & ~Value.cast(cleared),
                              Value.cast(read.data) | Value.cast(what))),
            write.en.eq(clears | due),
        ]
        with m.If(ready):
            m.d.sync += [due.eq(pushes), where.eq(function), what.eq(bits)]

        m.d.comb += seen.addr.eq(self.status.function)
        for register, value in zip(registers, (seen.data.primary, seen.data.secondary),
                                   strict=True):
            with m.If(self.status.register == fmap.dword(register)):
                m.d.comb += [self.status.value[place].eq(bit)
                             for place, bit in zip(_PLACES, Value.cast(value), strict=True)]
        return m

    def _bits(self, m, note, leaving, function, bits):
        state = Signal(PortState)
        with m.Switch(function):
            for n in range(self._ports + 1):
                with m.Case(n):
                    m.d.comb += state.eq(self.states[n])
        severe = note.message.any()
        # A message that the upstream port stops is no TLP of the bus above.
        whole = ~leaving | ~severe | note.sent
        above = Mux(leaving, note.target != 0, note.source == 0)  # it comes from above
        onward = Mux(leaving, ~severe | note.sent, note.crossed)
        for side, comes, watches, system in (
                (bits.primary, above, state.parity, severe & onward & state.serr),
                (bits.secondary, ~above, state.parity_below, severe)):
            poisoned = note.poisoned & whole
            with m.If(comes):
                m.d.comb += [
                    side.parity_of_data.eq(poisoned & watches & note.completion),
                    side.aborted.eq(note.aborted & ~leaving),
                    side.parity.eq(poisoned),
                ]
            with m.Else():
                m.d.comb += side.parity_of_data.eq(
                    poisoned & watches & ~note.completion & note.crossed)
            m.d.comb += side.system.eq(system)
        # In Secondary Status they are about requests of the bridge itself, which makes none.
        with m.If(above):
            m.d.comb += Cat(bits.primary.master_abort, bits.primary.target_abort).eq(note.abort)
