"""All histograms of a proxy in one memory: round trips, and both stages.

Ref: docs/reference/observe.md
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.switch.tracking.types import RoundTrip

from .round_trips import RoundTrips
from .stages import Passage

__all__ = ["MemoryAccess", "Times", "access_of"]

#: Bits of a byte address in a row of histograms.
ROW = 7


class MemoryAccess(wiring.Signature):
    """Access to registers in a memory, seen from who asks.

    Members
    -------
    address, request, write, write_data : Out
    read_data, done : In
        As of :class:`~dxpu.csr.RegisterFile` without its ``mem_``.
    """

    def __init__(self):
        super().__init__({
            "address": Out(16), "request": Out(1), "write": Out(1), "write_data": Out(32),
            "read_data": In(32), "done": In(1)})


def access_of(m: Module, file, access) -> None:
    """The registers in memory of ``file``, a :class:`~dxpu.csr.RegisterFile`, are behind
    ``access``, the ``In`` side of a :class:`MemoryAccess`."""
    m.d.comb += [
        access.address.eq(file.mem_address), access.request.eq(file.mem_request),
        access.write.eq(file.mem_write), access.write_data.eq(file.mem_write_data),
        file.mem_read_data.eq(access.read_data), file.mem_done.eq(access.done),
    ]


class Times(wiring.Component):
    """Sorts round trips and passages of all rows into histograms.

    The memory is a :class:`~.round_trips.RoundTrips`, with its throughput for all together. Round
    trips are noted first, as nobody can make them wait.

    Parameters
    ----------
    rows : int
        1 to 32.
    trips : bool
        There are round trips.
    receive : int
        Byte address of the registers of received TLPs, behind those of sent ones; above that, bits
        are not looked at.

    Members
    -------
    trip : :class:`~dxpu.switch.tracking.types.RoundTrip`
        Only with ``trips``, as the next one.
    of_trips : :class:`MemoryAccess`
        Access to round trips, row by row.
    send, receive : stream of :class:`~.stages.Passage`
    of_stages : :class:`MemoryAccess`
        Access to both stages. Only one of the two accesses is requested at a time.
    stat_missed : 1
        Pulse; only round trips are missed.
    """

    def __init__(self, *, rows, trips, receive):
        if rows not in range(1, 33):
            raise ValueError(f"rows must be 1 to 32, not {rows!r}")
        self._bits, self._trips, self._receive = (rows - 1).bit_length(), trips, receive
        self._memory = RoundTrips(ports=(3 if trips else 2) << self._bits)
        super().__init__({
            **({"trip": In(RoundTrip), "of_trips": In(MemoryAccess())} if trips else {}),
            "send": In(stream.Signature(Passage)), "receive": In(stream.Signature(Passage)),
            "of_stages": In(MemoryAccess()),
            "stat_missed": self._memory.signature.members["stat_missed"],
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.memory = memory = self._memory
        bits, first, access = self._bits, int(self._trips), self.of_stages
        passage, received = Signal(Passage), Signal()
        m.d.comb += [
            memory.request.eq(access.request), memory.write.eq(access.write),
            memory.write_data.eq(access.write_data),
            memory.address.eq(Cat(access.address[:ROW + bits], Mux(
                access.address >= self._receive, first + 1, first))),
            access.read_data.eq(memory.read_data), access.done.eq(memory.done),
            received.eq(~self.send.valid),
            passage.eq(Mux(received, self.receive.payload.as_value(),
                           self.send.payload.as_value())),
            memory.i.strobe.eq(self.send.valid | self.receive.valid),
            memory.i.slot.eq(Cat(passage.row[:bits], Mux(received, first + 1, first))),
            memory.i.time.eq(passage.time),
            self.send.ready.eq(1), self.receive.ready.eq(received),
            self.stat_missed.eq(memory.stat_missed),
        ]
        if not self._trips:
            return m
        trip, access = self.trip, self.of_trips
        m.d.comb += access.read_data.eq(memory.read_data)
        with m.If(trip.strobe):
            m.d.comb += [
                memory.i.strobe.eq(1), memory.i.slot.eq(trip.slot[:bits]),
                memory.i.time.eq(trip.time), self.send.ready.eq(0), self.receive.ready.eq(0),
            ]
        with m.If(access.request):
            m.d.comb += [
                memory.request.eq(1), memory.write.eq(access.write),
                memory.write_data.eq(access.write_data),
                memory.address.eq(access.address[:ROW + bits]),
                access.done.eq(memory.done),
            ]
        return m
