"""What an observed proxy has beside its datapath: measurements, and the log of events.

Ref: docs/reference/observe.md
"""

from amaranth import *

from dxpu.mapping.types import RowChange
from dxpu.observe import (
    CLOCK_BITS, EventKind, EventLog, HeadTap, Mark, Pulses, ReceiveTimer, SendTimer, Times,
    access_of,
)
from dxpu.stream import connect

from .registers import EVENTS, RECEIVE, UNIT

__all__ = ["Observation"]

#: Ends of the names of counters whose pulses are events: faults, frames that are sent again, waits
#: that ended, interrupts. The others have their counter only.
NOTABLE = (
    "pcie_malformed", "tlp_malformed", "slots_malformed", "switch_interrupt", "switch_blocked",
    "tracking_unexpected", "tx_repeated", "tx_unroutable", "rx_overflow", "rx_hcrc",
    "rx_record", "rx_body", "link_gap", "link_nak", "retry_timeout", "retry_failed",
    "opening_proof", "session_unfit", "binding_refused", "table_refused", "to_slots_dropped",
    "rx_bad_fcs", "management_tag",
)

#: Cycles after a reset until the highest levels count.
SETTLING = 1023


class Observation:
    """Measurements of a proxy: of stages, of how full its queues are, and the last events.

    Parameters
    ----------
    role : "host" or "box"
    width : int
        Data bits per beat.
    rows, paths : int
    fills : dict of str to :class:`~dxpu.stage.Fill`
        Queues by name.
    """

    def __init__(self, role, *, width, rows, paths, fills):
        self._width, self._rows, self._paths = width, rows, paths
        self.fills = fills
        #: A host's tracker times requests.
        self._is_host = role == "host"
        self._times = Times(rows=rows, trips=self._is_host, receive=RECEIVE)
        #: Parts that count something, by prefix.
        self.parts = {
            **({"round_trip_": self._times} if self._is_host else {}),
            "send_": SendTimer(middle=role == "host"), "receive_": ReceiveTimer()}

    def wire(self, m, files, *, bus, table, engine, pulses, fenced, entry, exit, entry_row=None,
             overdue=None, trip=None):
        """Make all of it.

        Parameters
        ----------
        m : Module
        files : dict of :class:`~dxpu.csr.RegisterFile`
            Of the blocks `observe` and `stages`.
        bus : :class:`~dxpu.csr.RegisterPort`
            All accesses to registers of the proxy, as its master sees them.
        table : the mapping table
        engine : :class:`~dxpu.fabric.engine.FabricEngine`
        pulses : dict of str to Value
            All counters, in order.
        fenced : ``rows``
            Strobes.
        entry, exit : packet streams
            TLPs that come from PCIe, and that go there.
        entry_row : 6
            Of a box: row of a TLP at ``entry``.
        overdue, trip : ``rows``, :class:`~dxpu.switch.tracking.types.RoundTrip`
            Of a host: requests that are open for too long, as strobes; a request that has ended.
        """
        file = files["observe"]
        # What is free is counted up after a reset.
        settling = Signal(range(SETTLING + 1))
        with m.If(settling != SETTLING):
            m.d.sync += settling.eq(settling + 1)
        for name, fill in self.fills.items():
            m.submodules[f"mark_{name}"] = mark = Mark(fill)
            register = getattr(file, f"mark_{name}")
            m.d.comb += [register.now.eq(mark.now), register.most.eq(mark.most),
                         mark.clear.eq(register.written | (settling != SETTLING))]
        m.d.comb += [file.waits.rows.eq(engine.waiting),
                     file.request_waits.rows.eq(engine.np_waits)]
        log = self._log(m, file, bus, table, engine, pulses, overdue, fenced)
        self._stages(m, engine, entry, entry_row, exit)
        self._share(m, files, log, trip)

    def _log(self, m, file, bus, table, engine, pulses, overdue, fenced):
        names = list(pulses)
        counted = [n for n, name in enumerate(names) if name.rstrip("0123456789").endswith(NOTABLE)]
        m.submodules.log = log = EventLog(words=3, pulses=[
            *(Pulses(kind, tuple(range(count))) for kind, count in (
                (EventKind.LINK_UP, self._paths), (EventKind.LINK_DOWN, self._paths),
                (EventKind.FENCED, self._rows),
                *([(EventKind.OVERDUE, self._rows)] if self._is_host else []))),
            Pulses(EventKind.COUNTED, tuple(counted), quiet=True),
        ])
        row, session, access = table.row_event, engine.session_news, bus.request
        links = Signal(self._paths)
        m.d.sync += links.eq(engine.links)
        m.d.comb += [
            log.words[0].strobe.eq(row.strobe), log.words[0].argument.eq(row.row),
            log.words[0].kind.eq(Mux(
                row.change == RowChange.BOUND, EventKind.BOUND, Mux(
                    row.change == RowChange.RELEASED, EventKind.RELEASED, EventKind.CHANGED))),
            log.words[1].strobe.eq(session.strobe), log.words[1].argument.eq(session.session),
            log.words[1].kind.eq(Mux(session.opened & session.ended, EventKind.REOPENED, Mux(
                session.opened, EventKind.OPENED, EventKind.ENDED))),
            log.words[2].strobe.eq(access.valid & access.ready & access.payload.write),
            log.words[2].argument.eq(access.payload.address),
            log.words[2].kind.eq(EventKind.WRITTEN),
            log.pulses.eq(Cat(
                engine.links & ~links, ~engine.links & links, fenced,
                *([overdue] if self._is_host else []), *(pulses[names[n]] for n in counted))),
            log.frozen.eq(file.log.frozen), file.log.lost.eq(log.losses),
            file.recorded.count.eq(log.recorded),
            file.now_low.time.eq(log.now), file.now_high.time.eq(log.now[32:]),
            log.address.eq(file.mem_address - EVENTS),
        ]
        return log

    def _stages(self, m, engine, entry, entry_row, exit):
        now = Signal(CLOCK_BITS)
        m.d.sync += now.eq(now + 1)

        def tap(name, stream):
            m.submodules[f"tap_{name}"] = tap = HeadTap(self._width)
            m.d.comb += [tap.take.eq(stream.valid & stream.ready), tap.now.eq(now),
                         tap.first.eq(stream.payload.first), tap.data.eq(stream.payload.data)]
            return tap.sight

        def row_of(value, name):
            """As late as a sight: that of its beat."""
            held = Signal(6, name=f"row_{name}")
            m.d.sync += held.eq(value)
            return held

        send, receive = m.submodules.send_timer, m.submodules.receive_timer = (
            self.parts["send_"], self.parts["receive_"])
        m.d.comb += [
            send.now.eq(now), receive.now.eq(now),
            send.entry.eq(tap("from_pcie", entry)), send.exit.eq(tap("into_frame", engine.leaving)),
            receive.entry.eq(tap("from_frame", engine.arrived)),
            receive.entry_row.eq(row_of(engine.arrived.payload.meta.row, "from_frame")),
            receive.exit.eq(tap("to_pcie", exit)),
            receive.arrival.ends.eq(engine.frame_ends),
            receive.arrival.takes.eq(engine.frame_takes),
            receive.arrival.judged.eq(engine.frame_judged),
        ]
        if entry_row is None:
            m.d.comb += [
                send.middle.eq(tap("to_engine", engine.tlp_i)),
                send.middle_row.eq(row_of(engine.tlp_i.payload.meta.row, "to_engine"))]
        else:
            m.d.comb += send.entry_row.eq(row_of(entry_row, "from_pcie"))

    def _share(self, m, files, log, trip):
        """Registers in memory are those of the log, behind all round trips, and histograms."""
        file, times = files["observe"], self._times
        m.submodules.times = times
        access_of(m, files["stages"], times.of_stages)
        connect(m, self.parts["send_"].o, times.send)
        connect(m, self.parts["receive_"].o, times.receive)
        is_entry = file.mem_address >= UNIT
        m.d.comb += log.request.eq(file.mem_request & is_entry)
        if not self._is_host:
            m.d.comb += [file.mem_read_data.eq(log.read_data), file.mem_done.eq(log.done)]
            return
        access_of(m, file, times.of_trips)
        m.d.comb += [times.trip.eq(trip), times.of_trips.request.eq(file.mem_request & ~is_entry)]
        with m.If(is_entry):
            m.d.comb += [file.mem_read_data.eq(log.read_data), file.mem_done.eq(log.done)]
