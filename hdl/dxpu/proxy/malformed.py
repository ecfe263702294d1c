"""Malformed TLPs of slots and of the host, on their way to the port that reports them.

A box removes what its slots send malformed; the downstream port that reports it is in the host. So
the box tells it in events: the dwords of the header, then the error.

Ref: PCIe Base 5.0, 6.2.3 and 6.2.4 (error logging); docs/reference/virtual-switch.md, "Errors"
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.fabric.wire.format import ErrorCode, EventCode
from dxpu.fabric.wire.types import Control, Event
from dxpu.priority import first_one, round_robin
from dxpu.rows import LIFE_BITS
from dxpu.switch.errors.types import MalformedTlp

__all__ = ["MalformedGatherer", "MalformedTeller"]

HEADER_DWORDS = 4


class MalformedTeller(wiring.Component):
    """Tells hosts which of their slots sent a malformed TLP, between the other events of a box.

    Each report is four events HEADER and an ERROR; then :attr:`PAUSE` cycles pass, so that a slot
    that sends nothing else takes little of the line. For what comes meanwhile an ERROR alone
    follows, one for each slot, in turn. What is of an earlier life, or of a slot that closes before
    its turn, is not told.

    Parameters
    ----------
    rows : int
        Slots of the box.

    Members
    -------
    i, o : streams of :class:`~dxpu.fabric.wire.types.Control`
        Other events pass, before reports, one cycle later.
    malformed, row, life, header : 1, 6, number, 4 dwords
        Pulse: a malformed TLP of a slot, and its header in lane order.
    open : ``rows``
    lives : array of numbers
    generation : array of 16-bit values
        As of :class:`~dxpu.proxy.box_slots.BoxSlots`.
    """

    #: Cycles between two reports: 33 us at 125 MHz, of which five events take 3 us at 1 Gb/s.
    PAUSE = 4096

    def __init__(self, *, rows):
        self._rows = rows
        super().__init__({
            "i": In(stream.Signature(Control)),
            "o": Out(stream.Signature(Control)),
            "malformed": In(1),
            "row": In(6),
            "life": In(LIFE_BITS),
            "header": In(data.ArrayLayout(32, HEADER_DWORDS)),
            "open": In(rows),
            "lives": In(data.ArrayLayout(LIFE_BITS, rows)),
            "generation": In(data.ArrayLayout(16, rows)),
        })

    def elaborate(self, platform):
        m = Module()
        missed, chosen = Signal(self._rows), Signal(range(self._rows))
        row, header = Signal(range(self._rows)), Signal.like(self.header, reset_less=True)
        left, pause = Signal(range(HEADER_DWORDS + 2)), Signal(range(self.PAUSE))
        mine, free = Signal(), Signal()
        m.d.comb += [
            mine.eq(self.malformed & self.open.bit_select(self.row, 1)
                    & (Array(self.lives)[self.row] == self.life)),
            chosen.eq(round_robin(missed, row)),
            free.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq(free),
        ]
        m.d.sync += missed.eq((missed | Mux(mine, 1 << self.row, 0)) & self.open)
        with m.If(left.any()):
            with m.If(free & ~self.i.valid):
                m.d.sync += [left.eq(left - 1), header.eq(Cat(Value.cast(header)[32:], C(0, 32)))]
                with m.If(left == 1):
                    m.d.sync += pause.eq(self.PAUSE - 1)
        with m.Elif(pause.any()):
            m.d.sync += pause.eq(pause - 1)
        with m.Elif(missed.any()):
            m.d.sync += [row.eq(chosen), left.eq(1)]
            m.d.sync += missed.eq((missed & ~(1 << chosen) | Mux(mine, 1 << self.row, 0))
                                  & self.open)
        with m.Elif(mine):
            m.d.sync += [row.eq(self.row), header.eq(self.header),
                         left.eq(HEADER_DWORDS + 1), missed.eq(0)]

        with m.If(free):
            m.d.sync += self.o.valid.eq(self.i.valid | left.any())
            with m.If(self.i.valid):
                m.d.sync += self.o.payload.eq(self.i.payload)
            with m.Else():
                last = left == 1
                m.d.sync += [
                    self.o.p.row.eq(row),
                    self.o.p.generation.eq(Array(self.generation)[row]),
                    self.o.p.code.eq(Mux(last, EventCode.ERROR, EventCode.HEADER)),
                    self.o.p.argument.eq(Mux(last, ErrorCode.MALFORMED, header[0])),
                ]
        return m


class MalformedGatherer(wiring.Component):
    """One stream of the malformed TLPs that the ports of a switch are to report.

    They come from three sides: from the host, from slots with more data than their port takes, and
    from boxes in events. One is kept with its header; for what comes while that waits, the port is
    told later, once, without: the header is 0. The same if a box has not told it. What a slot's
    earlier life did is forgotten.

    Parameters
    ----------
    rows : int
        Downstream ports.

    Members
    -------
    i, o : streams of :class:`~dxpu.fabric.wire.types.Event`
        Events of boxes; all that are no reports about open rows pass.
    generation : array of 16-bit values
    open : ``rows``
        Of the rows.
    link_active, contained : ``rows``
    lives : array of numbers
        From the switch. What was found here is told after all if the port is contained: it may be
        the reason.
    above, above_header : 1, 4 dwords
        Pulse: a malformed TLP of the host, and its header in lane order.
    below, row, life, below_header : 1, 6, number, 4 dwords
        Pulse: one of a slot, found here.
    found : stream of :class:`~dxpu.switch.errors.types.MalformedTlp`
        To the switch.
    now : ``rows``
        Pulses: ``below`` is about the life of that slot that is on.
    """

    def __init__(self, *, rows):
        self._rows = rows
        header = data.ArrayLayout(32, HEADER_DWORDS)
        super().__init__({
            "i": In(stream.Signature(Event)),
            "o": Out(stream.Signature(Event)),
            "generation": In(data.ArrayLayout(16, rows)),
            "open": In(rows),
            "link_active": In(rows),
            "contained": In(rows),
            "lives": In(data.ArrayLayout(LIFE_BITS, rows)),
            "above": In(1),
            "above_header": In(header),
            "below": In(1),
            "row": In(6),
            "life": In(LIFE_BITS),
            "below_header": In(header),
            "found": Out(stream.Signature(MalformedTlp)),
            "now": Out(rows),
        })

    def elaborate(self, platform):
        m = Module()
        rows, event, found = self._rows, self.i.payload, self.found
        m.submodules.headers = headers = Memory(
            shape=32, depth=rows * HEADER_DWORDS, init=[])
        write, read = headers.write_port(), headers.read_port(domain="comb")

        # Events: dwords into the memory, then the row is due.
        count = Signal(data.ArrayLayout(range(HEADER_DWORDS + 1), rows))
        told, complete = Signal(rows), Signal(rows)  # by boxes; all dwords came before
        heard, taken = Signal(), Signal()
        is_header = event.code == EventCode.HEADER
        is_error = (event.code == EventCode.ERROR) & (event.argument == ErrorCode.MALFORMED)
        m.d.comb += [
            heard.eq((is_header | is_error) & self.open.bit_select(event.row, 1)
                     & (Array(self.generation)[event.row] == event.generation)),
            taken.eq(self.i.valid & heard),
            self.o.payload.eq(event),
            self.o.valid.eq(self.i.valid & ~heard),
            self.i.ready.eq(self.o.ready | heard),
            write.addr.eq(event.row * HEADER_DWORDS + Array(count)[event.row]),
            write.data.eq(event.argument),
        ]
        # Ports, the host's first, that are told without a header.
        missed = Signal(rows + 1)
        mine = self.link_active.bit_select(self.row, 1) & (Array(self.lives)[self.row] == self.life)
        below = self.below & mine
        due, port = Signal(rows + 1), Signal(range(rows + 1))
        serve, chosen, dword = Signal(), Signal.like(port), Signal(range(HEADER_DWORDS))
        known = Signal()  # its header
        m.d.comb += [
            self.now.eq(Mux(below, 1 << self.row, 0)),
            due.eq(missed | Cat(C(0, 1), told)),
            chosen.eq(first_one(due)),
            read.addr.eq((port - 1) * HEADER_DWORDS + dword),
        ]
        later = Signal(rows + 1)  # to be remembered in this cycle
        header = found.p.header
        with m.FSM():
            with m.State("Idle"):
                with m.If(self.above):
                    m.d.sync += [found.p.function.eq(0), header.eq(self.above_header),
                                 found.valid.eq(1)]
                    m.d.comb += later.eq(Mux(below, 2 << self.row, 0))
                    m.next = "Found"
                with m.Elif(below):
                    m.d.sync += [found.p.function.eq(self.row + 1), header.eq(self.below_header),
                                 found.valid.eq(1)]
                    m.next = "Found"
                with m.Elif(due.any()):
                    m.d.sync += [port.eq(chosen), dword.eq(0), known.eq(
                        Cat(C(0, 1), complete & told).bit_select(chosen, 1))]
                    m.next = "Read"
            with m.State("Read"):
                # A row whose link has gone meanwhile is not due any more.
                with m.If(dword == HEADER_DWORDS - 1):
                    m.d.sync += [found.p.function.eq(port),
                                 found.valid.eq(due.bit_select(port, 1))]
                    m.d.comb += serve.eq(1)
                    m.next = "Found"
                m.d.sync += [
                    header[dword].eq(Mux(known, read.data, 0)),
                    dword.eq(dword + 1),
                ]
                m.d.comb += later.eq(Cat(self.above, Mux(below, 1 << self.row, 0)))
            with m.State("Found"):
                m.d.comb += later.eq(Cat(self.above, Mux(below, 1 << self.row, 0)))
                with m.If(~found.valid | found.ready):
                    m.d.sync += found.valid.eq(0)
                    m.next = "Idle"
        served = Mux(serve, 1 << port, 0)
        m.d.sync += missed.eq((missed & ~served | later)
                              & Cat(C(1, 1), self.link_active | self.contained))
        for n in range(rows):
            with m.If(served[n + 1] | ~self.link_active[n]):
                m.d.sync += told[n].eq(0)
            with m.If(~self.open[n]):
                m.d.sync += count[n].eq(0)
            with m.Elif(taken & (event.row == n)):
                with m.If(is_error):
                    m.d.sync += [count[n].eq(0), told[n].eq(self.link_active[n])]
                    # One that is still to be served keeps its header.
                    with m.If(~told[n] | served[n + 1]):
                        m.d.sync += complete[n].eq(count[n] == HEADER_DWORDS)
                with m.Elif(count[n] < HEADER_DWORDS):
                    m.d.comb += write.en.eq(~told[n])
                    m.d.sync += count[n].eq(Mux(told[n], 0, count[n] + 1))
        return m
