"""Lookup of an address or a bus number in the windows of all downstream ports, at once."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.mapping.types import LookupKind, LookupRequest, LookupResult, PortWindows
from dxpu.mapping.windows import check_rows
from dxpu.priority import encode, lowest_bit, round_robin

__all__ = ["Lookup", "SharedLookup"]


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


class SharedLookup(wiring.Component):
    """A :class:`Lookup` for several who ask, who wait for each other only while it takes a request.

    Whoever asks next has taken the last result, so nobody holds up the others by not taking one.
    Latency two cycles from when a request is taken; one lookup of each in two cycles, one of all
    per cycle, in turn. ``request<n>.ready`` depends combinationally on ``result<n>.ready`` and on
    all requests.

    Parameters
    ----------
    ports : int
        Downstream ports, 1 to 32.
    lookups : int

    Members
    -------
    windows : In array of :class:`PortWindows`
    request0, request1, ... : In stream of :class:`LookupRequest`
    result0, result1, ... : Out stream of :class:`LookupResult`
    """

    def __init__(self, *, ports, lookups):
        self._lookup, self._count = Lookup(ports=ports), lookups
        super().__init__({
            "windows": In(data.ArrayLayout(PortWindows, ports)),
            **{f"request{n}": In(stream.Signature(LookupRequest)) for n in range(lookups)},
            **{f"result{n}": Out(stream.Signature(LookupResult)) for n in range(lookups)},
        })

    def elaborate(self, platform):
        m = Module()
        m.submodules.lookup = lookup = self._lookup
        many = range(self._count)
        requests = [getattr(self, f"request{n}") for n in many]
        results = [getattr(self, f"result{n}") for n in many]
        may, turn, last = Signal(self._count), Signal(self._count), Signal(range(self._count))
        chosen = Signal.like(last)
        asked, owner = Signal(self._count), Signal(self._count)  # one cycle ago, two cycles ago
        m.d.comb += [
            lookup.windows.eq(self.windows),
            lookup.result.ready.eq(1),
            chosen.eq(round_robin(may, last)),
            turn.eq(Mux(may.any(), 1 << chosen, 0)),
            lookup.request.valid.eq(may.any()),
            lookup.request.p.eq(Array(r.p.as_value() for r in requests)[chosen]),
        ]
        m.d.sync += [asked.eq(turn), owner.eq(asked)]
        with m.If(may.any()):
            m.d.sync += last.eq(chosen)
        for n, (request, result) in enumerate(zip(requests, results, strict=True)):
            busy, kept = Signal(name=f"busy{n}"), Signal(LookupResult, name=f"kept{n}")
            waits = Signal(name=f"waits{n}")  # the result is in `kept`
            taken = result.valid & result.ready
            m.d.comb += [
                result.valid.eq(waits | owner[n]),
                result.p.eq(Mux(waits, kept, lookup.result.p)),
                may[n].eq(request.valid & (~busy | taken)),
                request.ready.eq(turn[n]),
            ]
            m.d.sync += [waits.eq(result.valid & ~result.ready), kept.eq(result.p),
                         busy.eq(turn[n] | busy & ~taken)]
        return m
