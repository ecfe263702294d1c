"""Parallel lookup of an address or a bus number in the windows of all downstream ports."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.mapping.types import LookupKind, LookupRequest, LookupResult, PortWindows
from dxpu.mapping.windows import check_rows
from dxpu.priority import encode, lowest_bit

__all__ = ["Lookup"]


class Lookup(wiring.Component):
    """Finds the lowest port that claims a value; all ports are compared at once.

    Memory and I/O windows count only while the port's enable for them is set; bus ranges always,
    but for bus 0. Overlapping windows are a mistake of the operating system: the lowest port wins.
    A request sees the windows as they are in the cycle in which it is taken.

    Latency two cycles, throughput one lookup per cycle, results in order. ``request.ready`` depends
    combinationally on ``result.ready``.

    Ref: PCI-to-PCI Bridge Architecture 1.2, 4.2 to 4.4; PCIe Base 5.0, 2.2.4

    Parameters
    ----------
    ports : int
        Downstream ports, 1 to 32.

    Members
    -------
    windows : In array of :class:`PortWindows`
    request : In stream of :class:`LookupRequest`
    result : Out stream of :class:`LookupResult`
    """

    def __init__(self, *, ports):
        self._ports = check_rows("ports", ports)
        super().__init__({
            "windows": In(data.ArrayLayout(PortWindows, ports)),
            "request": In(stream.Signature(LookupRequest)),
            "result": Out(stream.Signature(LookupResult)),
        })

    def elaborate(self, platform):
        m = Module()
        # Stage 1: one bit per port and comparison. Stage 2: the comparison asked for, lowest port.
        memory, io, bus = (Signal(self._ports, name=name, reset_less=True)
                           for name in ("memory", "io", "bus"))
        kind = Signal(LookupKind, reset_less=True)
        compared = Signal()
        claims, first = Signal(self._ports), Signal(self._ports)

        result_free = ~self.result.valid | self.result.ready
        m.d.comb += self.request.ready.eq(~compared | result_free)
        with m.If(self.request.ready):
            m.d.sync += [compared.eq(self.request.valid), kind.eq(self.request.p.kind)]
            for n in range(self._ports):
                m.d.sync += Cat(memory[n], io[n], bus[n]).eq(
                    self._claims(self.windows[n], self.request.p.value))

        with m.Switch(kind):
            with m.Case(LookupKind.MEMORY):
                m.d.comb += claims.eq(memory)
            with m.Case(LookupKind.IO):
                m.d.comb += claims.eq(io)
            with m.Case(LookupKind.BUS):
                m.d.comb += claims.eq(bus)
        m.d.comb += first.eq(lowest_bit(claims))
        with m.If(result_free):
            m.d.sync += [
                self.result.valid.eq(compared),
                self.result.p.hit.eq(claims.any()),
                self.result.p.port.eq(encode(first)),
            ]
        return m

    def _claims(self, w, value):
        """Whether a port claims ``value`` as memory address, as I/O address, as bus number."""
        megabyte = value[20:]
        low = ((megabyte[:12] >= w.memory_base) & (megabyte[:12] <= w.memory_limit)
               & ~megabyte[12:].any())
        high = (megabyte >= w.prefetch_base) & (megabyte <= w.prefetch_limit)
        page, number = value[12:32], value[:8]
        io = (page >= w.io_base) & (page <= w.io_limit)
        bus = (number >= w.secondary) & (number <= w.subordinate) & w.secondary.any()
        return Cat((low | high) & w.memory_enable, io & w.io_enable, bus)
