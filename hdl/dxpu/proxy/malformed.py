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
from dxpu.priority import pick
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
        rows, header = self._rows, Signal.like(self.malformed_header, reset_less=True)
        # Rows with a report that is to follow; the row of the report, or whose turn it is.
        missed, row, found = Signal(rows), Signal(range(rows)), Signal(rows)
        left, pause = Signal(range(HEADER_DWORDS + 2)), Signal(range(self.PAUSE))
        free, served = Signal(), Signal(rows)
        dword, next_row = Signal(range(HEADER_DWORDS)), Signal.like(row)
        m.d.comb += [
            found.eq(Cat(
                self.malformed_strobe & (self.malformed_row == n) & self.open[n]
                & (life == self.malformed_life) for n, life in enumerate(self.lives))),
            next_row.eq(Mux(row == rows - 1, 0, row + 1)),
            free.eq(~self.o.valid | self.o.ready),
            self.i.ready.eq(free),
        ]
        m.d.sync += missed.eq((missed & ~served | found) & self.open)
        with m.If(left.any()):
            with m.If(free & ~self.i.valid):
                m.d.sync += [left.eq(left - 1), dword.eq(dword + 1)]
                with m.If(left == 1):
                    m.d.sync += [pause.eq(self.PAUSE - 1), row.eq(next_row)]
        with m.Elif(pause.any()):
            m.d.sync += pause.eq(pause - 1)
        with m.Elif(missed.any()):
            m.d.comb += served.eq(1 << row)
            with m.If(pick(missed, row)):
                m.d.sync += left.eq(1)
            with m.Else():
                m.d.sync += row.eq(next_row)
        with m.Elif(found.any()):
            m.d.sync += [row.eq(self.malformed_row), header.eq(self.malformed_header),
                         left.eq(HEADER_DWORDS + 1), dword.eq(0), missed.eq(0)]

        with m.If(free):
            m.d.sync += self.o.valid.eq(self.i.valid | left.any())
            with m.If(self.i.valid):
                m.d.sync += self.o.payload.eq(self.i.payload)
            with m.Else():
                last = left == 1
                m.d.sync += [
                    self.o.p.row.eq(row),
                    self.o.p.generation.eq(pick(self.generations, row)),
                    self.o.p.code.eq(Mux(last, EventCode.ERROR, EventCode.HEADER)),
                    self.o.p.argument.eq(
                        Mux(last, ErrorCode.MALFORMED, pick(header, dword))),
                ]
        return m


class MalformedCollector(wiring.Component):
    """Merges reports of malformed TLPs into one stream for the switch.

    They have three sources: TLPs of the host, TLPs of slots that exceed the limit of their port
    here, and reports of boxes in events. One from here is reported with its header, two cycles
    later. For more that come before its report was taken, their port gets one report later, with a
    header of 0; so does a port whose box sent no complete header. Ports with reports that wait are
    searched one in a cycle. Reports of earlier lives are removed.

    Parameters
    ----------
    rows : int
        Downstream ports.

    Members
    -------
    i, o : streams of :class:`~dxpu.fabric.wire.types.Event`
        Events of boxes in; those that are no report for an open row, out. Latency 0.
    event_generation, open : 16, ``rows``
        Generation of the row that the event on ``i`` names, in the same cycle; rows that are open.
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
            "event_generation": In(16),
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
        # Ports are those of functions: row n is port n + 1. Memories have the low bits of a port.
        index = max(1, (rows - 1).bit_length())
        port, row_port = Signal(range(rows + 1)), Signal(index)
        m.submodules.headers = headers = Memory(
            shape=32, depth=HEADER_DWORDS << index, init=[])
        m.submodules.counts = counts = Memory(
            shape=range(HEADER_DWORDS + 1), depth=1 << index, init=[])
        m.submodules.complete = complete = Memory(shape=1, depth=1 << index, init=[])
        write_word, word = headers.write_port(), headers.read_port(domain="comb")
        write_count, old_count = counts.write_port(), counts.read_port(domain="comb")
        write_complete, is_complete = complete.write_port(), complete.read_port(domain="comb")

        # Events: HEADER is stored, ERROR makes the report of its row pending.
        begun = Signal(rows)     # the count of the row is in the memory; else it is 0
        reported = Signal(rows)  # by boxes
        row_events, row_reported, is_current = Signal(rows), Signal(), Signal()
        is_report, report_taken, count = Signal(), Signal(), Signal.like(old_count.data)
        dword, serve, known = Signal(range(HEADER_DWORDS)), Signal(), Signal()
        is_header = event.code == EventCode.HEADER
        is_error = (event.code == EventCode.ERROR) & (event.argument == ErrorCode.MALFORMED)
        m.d.comb += [
            is_current.eq(event.generation == self.event_generation),
            row_events.eq(Cat((event.row == n) & self.open[n] & is_current for n in range(rows))),
            is_report.eq((is_header | is_error) & row_events.any()),
            report_taken.eq(self.i.valid & is_report),
            self.o.payload.eq(event),
            self.o.valid.eq(self.i.valid & ~is_report),
            self.i.ready.eq(self.o.ready | is_report),
            row_port.eq(event.row + 1),
            old_count.addr.eq(row_port),
            count.eq(Mux((begun & row_events).any(), old_count.data, 0)),
            # A pending report keeps its header.
            row_reported.eq((reported & row_events).any()
                            & ~(serve & (port[:index] == row_port))),
            write_word.addr.eq(Cat(count[:2], row_port)), write_word.data.eq(event.argument),
            write_word.en.eq(report_taken & is_header & ~row_reported & ~count[2]),
            write_count.addr.eq(row_port), write_count.en.eq(report_taken),
            write_count.data.eq(Mux(is_error | row_reported, 0, count + ~count[2])),
            write_complete.addr.eq(row_port), write_complete.data.eq(count[2]),
            write_complete.en.eq(report_taken & is_error & ~row_reported),
        ]
        m.d.sync += begun.eq((begun | Mux(report_taken, row_events, 0)) & self.open)

        # Ports, the upstream port first, that get a report without a header.
        missed, postponed, served = Signal(rows + 1), Signal(rows + 1), Signal(rows + 1)
        pending, by_box = Signal(), Signal()  # of `port`
        # What was found here, a cycle later; its header, if a report may begin, else 0.
        of_host, of_rows, slot_port = Signal(), Signal(rows), Signal.like(report.p.function)
        idle, fits = Signal(), Signal()
        host_header, slot_header = (Signal.like(self.slot_header, name=name)
                                    for name in ("host_header", "slot_header"))
        m.d.sync += [
            of_host.eq(self.upstream_malformed), of_rows.eq(self.malformed_rows),
            slot_port.eq(self.slot_row + 1),
            fits.eq(idle & (self.upstream_malformed | self.malformed_rows.any())),
            host_header.eq(Mux(idle & self.upstream_malformed,
                               Value.cast(self.upstream_header), 0)),
            slot_header.eq(Mux(idle & self.malformed_rows.any(),
                               Value.cast(self.slot_header), 0)),
        ]
        m.d.comb += [
            self.malformed_rows.eq(Cat(
                self.slot_malformed & (self.slot_row == n) & self.link_active[n]
                & (life == self.slot_life) for n, life in enumerate(self.lives))),
            postponed.eq(Cat(of_host, of_rows)),
            by_box.eq(pick([0, *reported], port)),
            pending.eq(by_box | pick(missed, port)),
            is_complete.addr.eq(port), word.addr.eq(Cat(dword, port[:index])),
            served.eq(Mux(serve, 1 << port, 0)),
        ]
        load, stored = Signal(HEADER_DWORDS), Signal(32)
        for n, header in enumerate(report.p.header):
            with m.If(load[n]):
                # One of them: a LUT for each bit.
                m.d.sync += header.eq(host_header[n] | stored | Mux(of_host, 0, slot_header[n]))
        with m.FSM():
            with m.State("Idle"):
                m.d.comb += [idle.eq(1), load.eq(-1)]
                m.d.sync += [
                    known.eq(by_box & is_complete.data), dword.eq(0),
                    report.p.function.eq(Mux(of_host, 0, slot_port)),
                ]
                with m.If(fits):
                    m.d.comb += postponed.eq(Cat(C(0, 1), Mux(of_host, of_rows, 0)))
                    m.d.sync += report.valid.eq(1)
                    m.next = "Report"
                with m.Elif(pending):
                    m.next = "Read"
                with m.Else():
                    m.d.sync += port.eq(Mux(port == rows, 0, port + 1))
            with m.State("Read"):
                m.d.comb += [stored.eq(Mux(known, word.data, 0)),
                             load.eq(Mux(fits, 0, 1 << dword))]
                m.d.sync += dword.eq(dword + ~fits)
                # The link may have gone down since, which removed the report.
                with m.If(dword == HEADER_DWORDS - 1):
                    m.d.sync += [report.p.function.eq(port), report.valid.eq(pending)]
                    m.d.comb += serve.eq(1)
                    m.next = "Report"
            with m.State("Report"):
                with m.If(~report.valid | report.ready):
                    m.d.sync += report.valid.eq(0)
                    m.next = "Idle"
        errors = Mux(report_taken & is_error, row_events, 0)
        m.d.sync += [
            missed.eq((missed & ~served | postponed)
                      & Cat(C(1, 1), self.link_active | self.contained)),
            reported.eq((reported & ~served[1:] | errors) & self.link_active),
        ]
        return m
