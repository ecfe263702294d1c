"""Bindings of a host: which rows are open, and the events to the boxes.

Ref: docs/explanation/bindings-and-lives.md, "Bindings"
"""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from dxpu.fabric.wire.format import EventCode
from dxpu.fabric.wire.types import Control
from dxpu.mapping.types import RowChange, RowEvent
from dxpu.priority import encode, lowest_bit
from dxpu.rows import LIFE_BITS

__all__ = ["HostBindings"]


class HostBindings(wiring.Component):
    """Sends the events that follow from changes of the host table: BIND when a row is bound, UNBIND
    when it is released, RESET on request.

    A row opens in the cycle in which its BIND is offered first, so no TLP leaves before the BIND,
    and closes with its release, before the UNBIND. Events of one row leave in the order UNBIND,
    BIND, RESET; of several rows with events the lowest goes first. A BIND waits until the session
    is open. UNBIND has the generation of the BIND before it. BIND and RESET carry the number of the
    slot's life as argument, which the box repeats in RESET_DONE.

    An event is offered two cycles after its cause if no other is offered.

    Parameters
    ----------
    rows : int
        Rows of the host table.

    Members
    -------
    row_event : :class:`~dxpu.mapping.types.RowEvent`
        Change of the host table.
    generations : array of 16-bit values
        Generation of each row in the host table.
    lives : array of numbers
        Current life of each slot.
    reset_request : ``rows``
        Strobes: send RESET for row n. Ignored while the row is not open.
    session_down : ``rows``
        Bit n: the session of row n is not open.
    control : stream of :class:`~dxpu.fabric.wire.types.Control`
        Events to be sent.
    events_routed : 1
        The fabric engine has routed every event that it took from ``control``.
    open : ``rows``
        Bit n: TLPs of row n may pass in both directions.
    opened : ``rows``
        Strobes: row n opens in the next cycle.
    draining : ``rows``
        Bit n: the UNBIND of row n has no route yet. The row must keep its peer until then.
    """

    def __init__(self, *, rows):
        self._rows = rows
        super().__init__({
            "row_event": In(RowEvent),
            "generations": In(data.ArrayLayout(16, rows)),
            "lives": In(data.ArrayLayout(LIFE_BITS, rows)),
            "reset_request": In(rows),
            "session_down": In(rows),
            "control": Out(stream.Signature(Control)),
            "events_routed": In(1, init=1),
            "open": Out(rows),
            "opened": Out(rows),
            "draining": Out(rows),
        })

    def elaborate(self, platform):
        m = Module()
        rows, event, control = self._rows, self.row_event, self.control
        unbind, bind, reset, unrouted = (
            Signal(rows, name=n) for n in ("unbind", "bind", "reset_pending", "unrouted"))
        # Generations of the last BINDs.
        m.submodules.bound = bound = Memory(shape=16, depth=rows, init=[])
        generation, write = bound.read_port(domain="comb"), bound.write_port()

        # The row whose event is loaded next, and the first event of it.
        pending, chosen, row = Signal(rows), Signal(rows), Signal(range(rows))
        loads, is_unbind, is_bind = Signal(), Signal(), Signal()
        ready_to_bind = bind & ~self.session_down
        m.d.comb += [
            pending.eq(unbind | ready_to_bind | reset),
            chosen.eq(lowest_bit(pending)),
            row.eq(encode(chosen)),
            is_unbind.eq((chosen & unbind).any()),
            is_bind.eq(~is_unbind & (chosen & ready_to_bind).any()),
            loads.eq(~control.valid & pending.any() & ~event.strobe),
            self.opened.eq(Mux(loads & is_bind, chosen, 0)),
            generation.addr.eq(row),
            write.addr.eq(row), write.data.eq(Array(self.generations)[row]),
            write.en.eq(loads & is_bind),
        ]
        with m.If(control.ready):
            m.d.sync += control.valid.eq(0)
        with m.If(loads):
            m.d.sync += [
                control.valid.eq(1),
                control.payload.row.eq(row),
                control.payload.generation.eq(Mux(is_bind, write.data, generation.data)),
                control.payload.code.eq(Mux(is_unbind, EventCode.UNBIND, Mux(
                    is_bind, EventCode.BIND, EventCode.RESET))),
                control.payload.argument.eq(Mux(is_unbind, 0, Array(self.lives)[row])),
            ]

        # Events that become pending, or are loaded.
        mine, unbinds, binds, resets = (
            Signal(rows, name=n) for n in ("mine", "unbinds", "binds", "resets"))
        is_bound, is_released = Signal(rows), Signal(rows)
        m.d.comb += [
            mine.eq(Mux(event.strobe, 1 << event.row, 0)),
            is_bound.eq(Mux(event.change == RowChange.BOUND, mine, 0)),
            is_released.eq(Mux(event.change == RowChange.RELEASED, mine, 0)),
            unbinds.eq(Mux(loads & is_unbind, chosen, 0)),
            binds.eq(self.opened),
            resets.eq(Mux(loads & ~is_unbind & ~is_bind, chosen, 0)),
        ]
        m.d.sync += [
            # A binding without a BIND needs no UNBIND; that of an earlier one may be pending.
            unbind.eq((unbind | is_released & self.open) & ~unbinds),
            bind.eq((bind | is_bound) & ~binds & ~is_released),
            reset.eq((reset | self.reset_request & self.open) & ~resets & ~is_released),
            self.open.eq((self.open | binds) & ~is_released),
        ]

        ends = Signal(rows)
        m.d.comb += [
            ends.eq(Mux(control.valid & (control.payload.code == EventCode.UNBIND),
                        1 << control.payload.row, 0)),
            self.draining.eq(unbind | unrouted | ends),
        ]
        with m.If(control.valid):
            m.d.sync += unrouted.eq(unrouted | ends)
        with m.Elif(self.events_routed):
            m.d.sync += unrouted.eq(0)
        return m
