"""Reports of malformed TLPs, from where they are dropped to the port that logs them.

A box drops the malformed TLPs of its slots, but the downstream port that logs the error is in the
host. So the box sends a report in events: four HEADER with a dword each, then ERROR.

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

__all__ = ["MalformedCollector", "MalformedReporter"]

HEADER_DWORDS = 4


class MalformedReporter(wiring.Component):
    """Adds reports of malformed TLPs to the events of a box.

    A report is four events HEADER and one ERROR. A pause of :attr:`PAUSE` cycles follows, so that a
    slot that sends nothing but malformed TLPs takes little of the line. For malformed TLPs that
    come during a report or a pause an ERROR without HEADER follows later, one per slot, in turn. A
    TLP of an earlier life is not reported, nor is one of a slot that closes before its turn.

    Parameters
    ----------
    rows : int
        Slots of the box.

    Members
    -------
    i, o : streams of :class:`~dxpu.fabric.wire.types.Control`
        Events of the box in; the same and reports out. Events of ``i`` go before reports. Latency
        one cycle.
    malformed_strobe, malformed_row, malformed_life, malformed_header : 1, 6, number, 4 dwords
        Pulse: a malformed TLP, with its row, its life and its header in lane order.
    open, lives, generations : ``rows``, array of numbers, array of 16-bit values
        State of the slots, from :class:`~dxpu.proxy.box_slots.BoxSlots` and the box table.
    """

    #: Cycles between two reports: 33 us at 125 MHz, of which five events take 3 us at 1 Gb/s.
    PAUSE = 4096

    def __init__(self, *, rows):
        self._rows = rows
        super().__init__({
            "i": In(stream.Signature(Control)),
            "o": Out(stream.Signature(Control)),
            "malformed_strobe": In(1),
            "malformed_row": In(6),
            "malformed_life": In(LIFE_BITS),
            "malformed_header": In(data.ArrayLayout(32, 4)),
            "open": In(rows),
            "lives": In(data.ArrayLayout(LIFE_BITS, rows)),
            "generations": In(data.ArrayLayout(16, rows)),
        })

    def elaborate(self, platform):
        m = Module()
        missed, chosen = Signal(self._rows), Signal(range(self._rows))
        row, header = Signal(range(self._rows)), Signal.like(self.malformed_header, reset_less=True)
        left, pause = Signal(range(HEADER_DWORDS + 2)), Signal(range(self.PAUSE))
        is_current, free = Signal(), Signal()
        m.d.comb += [
            is_current.eq(self.malformed_strobe & self.open.bit_select(self.malformed_row, 1)
                    & (Array(self.lives)[self.malformed_row] == self.malformed_life)),
            chosen.eq(round_robin(missed, row)),
            free.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq(free),
        ]
        m.d.sync += missed.eq((missed | Mux(is_current, 1 << self.malformed_row, 0)) & self.open)
        with m.If(left.any()):
            with m.If(free & ~self.i.valid):
                m.d.sync += [left.eq(left - 1), header.eq(Cat(Value.cast(header)[32:], C(0, 32)))]
                with m.If(left == 1):
                    m.d.sync += pause.eq(self.PAUSE - 1)
        with m.Elif(pause.any()):
            m.d.sync += pause.eq(pause - 1)
        with m.Elif(missed.any()):
            m.d.sync += [row.eq(chosen), left.eq(1)]
            m.d.sync += missed.eq((missed & ~(1 << chosen)
                                   | Mux(is_current, 1 << self.malformed_row, 0)) & self.open)
        with m.Elif(is_current):
            m.d.sync += [row.eq(self.malformed_row), header.eq(self.malformed_header),
                         left.eq(HEADER_DWORDS + 1), missed.eq(0)]

        with m.If(free):
            m.d.sync += self.o.valid.eq(self.i.valid | left.any())
            with m.If(self.i.valid):
                m.d.sync += self.o.payload.eq(self.i.payload)
            with m.Else():
                last = left == 1
                m.d.sync += [
                    self.o.p.row.eq(row),
                    self.o.p.generation.eq(Array(self.generations)[row]),
                    self.o.p.code.eq(Mux(last, EventCode.ERROR, EventCode.HEADER)),
                    self.o.p.argument.eq(Mux(last, ErrorCode.MALFORMED, header[0])),
                ]
        return m


class MalformedCollector(wiring.Component):
    """Merges reports of malformed TLPs into one stream for the switch.

    They have three sources: TLPs of the host, TLPs of slots that exceed the limit of their port
    here, and reports of boxes in events. One from here is stored with its header. For more that
    come before it was taken, their port gets one report later, with a header of 0; so does a port
    whose box sent no complete header. Reports of earlier lives are removed.

    Parameters
    ----------
    rows : int
        Downstream ports.

    Members
    -------
    i, o : streams of :class:`~dxpu.fabric.wire.types.Event`
        Events of boxes in; those that are no report for an open row, out. Latency 0.
    generations, open : array of 16-bit values, ``rows``
        Rows of the host table.
    link_active, contained, lives : ``rows``, ``rows``, array of numbers
        State of the ports. A pending report of a TLP that was found here outlives the link of a
        contained port: the TLP may be the reason of the containment.
    upstream_malformed, upstream_header : 1, 4 dwords
        Pulse: a malformed TLP of the host, with its header in lane order.
    slot_malformed, slot_row, slot_life, slot_header : 1, 6, number, 4 dwords
        Pulse: a malformed TLP of a slot that was found here.
    malformed : stream of :class:`~dxpu.switch.errors.types.MalformedTlp`
        To the switch.
    malformed_rows : ``rows``
        Pulses: ``slot_malformed`` is a TLP of the current life of slot n; in the same cycle.
    """

    def __init__(self, *, rows):
        self._rows = rows
        header = data.ArrayLayout(32, HEADER_DWORDS)
        super().__init__({
            "i": In(stream.Signature(Event)),
            "o": Out(stream.Signature(Event)),
            "generations": In(data.ArrayLayout(16, rows)),
            "open": In(rows),
            "link_active": In(rows),
            "contained": In(rows),
            "lives": In(data.ArrayLayout(LIFE_BITS, rows)),
            "upstream_malformed": In(1),
            "upstream_header": In(header),
            "slot_malformed": In(1),
            "slot_row": In(6),
            "slot_life": In(LIFE_BITS),
            "slot_header": In(header),
            "malformed": Out(stream.Signature(MalformedTlp)),
            "malformed_rows": Out(rows),
        })

    def elaborate(self, platform):
        m = Module()
        rows, event, report = self._rows, self.i.payload, self.malformed
        m.submodules.headers = headers = Memory(
            shape=32, depth=rows * HEADER_DWORDS, init=[])
        write, read = headers.write_port(), headers.read_port(domain="comb")

        # Events: HEADER is stored, ERROR makes the report of its row pending.
        count = Signal(data.ArrayLayout(range(HEADER_DWORDS + 1), rows))
        reported, complete = Signal(rows), Signal(rows)  # by boxes; with a whole header
        is_report, report_taken = Signal(), Signal()
        is_header = event.code == EventCode.HEADER
        is_error = (event.code == EventCode.ERROR) & (event.argument == ErrorCode.MALFORMED)
        m.d.comb += [
            is_report.eq((is_header | is_error) & self.open.bit_select(event.row, 1)
                         & (Array(self.generations)[event.row] == event.generation)),
            report_taken.eq(self.i.valid & is_report),
            self.o.payload.eq(event),
            self.o.valid.eq(self.i.valid & ~is_report),
            self.i.ready.eq(self.o.ready | is_report),
            write.addr.eq(event.row * HEADER_DWORDS + Array(count)[event.row]),
            write.data.eq(event.argument),
        ]
        # Ports, the upstream port first, that get a report without a header.
        missed = Signal(rows + 1)
        is_current = (self.link_active.bit_select(self.slot_row, 1)
                      & (Array(self.lives)[self.slot_row] == self.slot_life))
        slot_current = self.slot_malformed & is_current
        pending, port = Signal(rows + 1), Signal(range(rows + 1))
        serve, chosen, dword = Signal(), Signal.like(port), Signal(range(HEADER_DWORDS))
        known = Signal()  # its header is in the memory
        m.d.comb += [
            self.malformed_rows.eq(Mux(slot_current, 1 << self.slot_row, 0)),
            pending.eq(missed | Cat(C(0, 1), reported)),
            chosen.eq(first_one(pending)),
            read.addr.eq((port - 1) * HEADER_DWORDS + dword),
        ]
        postponed = Signal(rows + 1)  # becomes `missed`
        either = Cat(self.upstream_malformed, Mux(slot_current, 1 << self.slot_row, 0))
        header = report.p.header
        with m.FSM():
            with m.State("Idle"):
                with m.If(self.upstream_malformed):
                    m.d.sync += [report.p.function.eq(0), header.eq(self.upstream_header),
                                 report.valid.eq(1)]
                    m.d.comb += postponed.eq(Mux(slot_current, 2 << self.slot_row, 0))
                    m.next = "Report"
                with m.Elif(slot_current):
                    m.d.sync += [report.p.function.eq(self.slot_row + 1),
                                 header.eq(self.slot_header),
                                 report.valid.eq(1)]
                    m.next = "Report"
                with m.Elif(pending.any()):
                    m.d.sync += [port.eq(chosen), dword.eq(0), known.eq(
                        Cat(C(0, 1), complete & reported).bit_select(chosen, 1))]
                    m.next = "Read"
            with m.State("Read"):
                # The link may have gone down since, which removed the report.
                with m.If(dword == HEADER_DWORDS - 1):
                    m.d.sync += [report.p.function.eq(port),
                                 report.valid.eq(pending.bit_select(port, 1))]
                    m.d.comb += serve.eq(1)
                    m.next = "Report"
                m.d.sync += [
                    header[dword].eq(Mux(known, read.data, 0)),
                    dword.eq(dword + 1),
                ]
                m.d.comb += postponed.eq(either)
            with m.State("Report"):
                m.d.comb += postponed.eq(either)
                with m.If(~report.valid | report.ready):
                    m.d.sync += report.valid.eq(0)
                    m.next = "Idle"
        served = Mux(serve, 1 << port, 0)
        m.d.sync += missed.eq((missed & ~served | postponed)
                              & Cat(C(1, 1), self.link_active | self.contained))
        for n in range(rows):
            with m.If(served[n + 1] | ~self.link_active[n]):
                m.d.sync += reported[n].eq(0)
            with m.If(~self.open[n]):
                m.d.sync += count[n].eq(0)
            with m.Elif(report_taken & (event.row == n)):
                with m.If(is_error):
                    m.d.sync += [count[n].eq(0), reported[n].eq(self.link_active[n])]
                    # A pending report keeps its header.
                    with m.If(~reported[n] | served[n + 1]):
                        m.d.sync += complete[n].eq(count[n] == HEADER_DWORDS)
                with m.Elif(count[n] < HEADER_DWORDS):
                    m.d.comb += write.en.eq(~reported[n])
                    m.d.sync += count[n].eq(Mux(reported[n], 0, count[n] + 1))
        return m
