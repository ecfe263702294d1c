"""Lookup of addresses and bus numbers in the windows of the downstream ports."""

from amaranth import *
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from dxpu.priority import encode, first_one, lowest_bit, round_robin

from .types import ConfigUpdate, LookupKind, LookupRequest, LookupResult, PortWindows
from .windows import WindowMemory, check_rows

__all__ = ["Lookup", "SharedLookup"]


def claims_address(w, address):
    """Two bits: a port with the windows ``w`` claims the address as memory; as I/O."""
    megabyte, page = address[20:], address[12:32]
    low = ((megabyte[:12] >= w.memory_base) & (megabyte[:12] <= w.memory_limit)
           & ~megabyte[12:].any())
    high = (megabyte >= w.prefetch_base) & (megabyte <= w.prefetch_limit)
    io = (page >= w.io_base) & (page <= w.io_limit)
    return Cat((low | high) & w.memory_enable, io & w.io_enable)


def claims_bus(w, number):
    """Whether a bus number is behind a port with the windows ``w``."""
    return (number >= w.secondary) & (number <= w.subordinate) & w.secondary.any()


def claims_by_kind(w, request):
    """A bit for each :class:`LookupKind`: a port with the windows ``w`` claims the address, or the
    bus number, of a :class:`LookupRequest`."""
    return Cat(claims_address(w, request.address), claims_bus(w, request.bus))


class Lookup(wiring.Component):
    """Finds the lowest port that claims a value; compares with all ports at once.

    A memory or I/O window counts only while the port's enable for it is set. A bus range always
    counts; bus 0 is in none. If windows overlap, which is an error of the operating system, the
    lowest port wins. A request is compared with the windows of the cycle in which it is taken.

    Latency two cycles, throughput one lookup per cycle, results in order. ``request.ready`` depends
    combinationally on ``result.ready``.

    Ref: PCI-to-PCI Bridge Architecture 1.2, 4.2 to 4.4; PCIe Base 5.0, 2.2.4

    Parameters
    ----------
    ports : int
        Downstream ports, 1 to 32.

    Members
    -------
    windows, upstream_windows : In array of :class:`PortWindows`, In :class:`PortWindows`
        Windows of all downstream ports, and of the upstream port.
    request : In stream of :class:`LookupRequest`
        Values to look up.
    result : Out stream of :class:`LookupResult`
        Result of each request.
    """

    def __init__(self, *, ports):
        self._ports = check_rows("ports", ports)
        super().__init__({
            "windows": In(data.ArrayLayout(PortWindows, ports)),
            "upstream_windows": In(PortWindows),
            "request": In(stream.Signature(LookupRequest)),
            "result": Out(stream.Signature(LookupResult)),
        })

    def elaborate(self, platform):
        m = Module()
        # Stage 1: one bit per port and kind of value. Stage 2: the lowest port of the kind.
        memory, io, bus = (Signal(self._ports, name=name, reset_less=True)
                           for name in ("memory", "io", "bus"))
        kind = Signal(LookupKind, reset_less=True)
        compared = Signal()
        claims, first = Signal(self._ports), Signal(self._ports)
        above = Signal(3, reset_less=True)  # of the upstream port

        result_free = ~self.result.valid | self.result.ready
        m.d.comb += self.request.ready.eq(~compared | result_free)
        with m.If(self.request.ready):
            m.d.sync += [compared.eq(self.request.valid), kind.eq(self.request.p.kind),
                         above.eq(self._claims(self.upstream_windows, self.request.p))]
            for n in range(self._ports):
                m.d.sync += Cat(memory[n], io[n], bus[n]).eq(
                    self._claims(self.windows[n], self.request.p))

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
                self.result.p.upstream.eq(above.bit_select(kind.as_value(), 1)),
            ]
        return m

    def _claims(self, w, request):
        """Whether a port claims the memory address, the I/O address, the bus number."""
        return claims_by_kind(w, request)


class SharedLookup(wiring.Component):
    """Lookups of several clients, which take turns, with less logic than a :class:`Lookup`.

    A bus number is compared with the ranges of all ports at once, an address with the windows of
    one port per cycle, from port 0 on, until one claims it. Windows that change during a search
    count as before or as after.

    A search takes two cycles, and one more for each port that does not claim the address; then the
    next one begins. A client whose last result was not taken before this cycle gets no turn, so it
    does not hold up the others. ``request<n>.ready`` depends combinationally on all requests. After
    reset the first search waits one cycle per port, and updates are ignored until then (a
    :class:`~dxpu.switch.config_space.ConfigSpace` sends none of a downstream port so early).

    Software reads the windows of a port between two searches, which takes a cycle.

    Parameters
    ----------
    ports : int
        Downstream ports, 1 to 32.
    lookups : int
        Clients.

    Members
    -------
    config : In :class:`ConfigUpdate`
        Updates of configuration registers.
    windows, upstream_windows : In array of :class:`PortWindows`, In :class:`PortWindows`
        Windows after these updates, of the downstream ports, of which only the bus numbers are
        used, and of the upstream port.
    request0, request1, ... : In stream of :class:`LookupRequest`
        Values of each client.
    result0, result1, ... : Out stream of :class:`LookupResult`
        Results of each client, in order.
    read, read_port : 1 in, range(ports) in
        Software reads the windows of that port; held until ``read_done``.
    read_done, read_windows : 1 out, :class:`PortWindows` out
        Strobe: the windows of the port, with its bus numbers.
    """

    #: Memory that is searched; a test puts another one here.
    MEMORY = WindowMemory

    def __init__(self, *, ports, lookups):
        self._ports, self._count = check_rows("ports", ports), lookups
        super().__init__({
            "config": In(ConfigUpdate),
            "windows": In(data.ArrayLayout(PortWindows, ports)),
            "upstream_windows": In(PortWindows),
            **{f"request{n}": In(stream.Signature(LookupRequest)) for n in range(lookups)},
            **{f"result{n}": Out(stream.Signature(LookupResult)) for n in range(lookups)},
            "read": In(1),
            "read_port": In(range(ports)),
            "read_done": Out(1),
            "read_windows": Out(PortWindows),
        })

    def elaborate(self, platform):
        m = Module()
        many = range(self._count)
        requests = [getattr(self, f"request{n}") for n in many]
        results = [getattr(self, f"result{n}") for n in many]
        eligible, last = Signal(self._count), Signal(range(self._count))
        chosen, pending, query = Signal.like(last), Signal(), Signal(LookupRequest)
        searching, done, answer = Signal(), Signal(), Signal(LookupResult)
        owner, found = Signal(self._count), Signal(LookupResult)
        m.d.comb += [
            chosen.eq(Mux(searching, last, round_robin(eligible, last))),
            pending.eq(eligible.bit_select(chosen, 1)),
            query.eq(Array(r.p.as_value() for r in requests)[chosen]),
        ]
        self._search(m, pending, query, searching, done, answer)
        m.d.sync += [owner.eq(Mux(done, 1 << chosen, 0)), found.eq(answer)]
        with m.If(pending):
            m.d.sync += last.eq(chosen)
        for n, (request, result) in enumerate(zip(requests, results, strict=True)):
            busy, saved = Signal(name=f"busy{n}"), Signal(LookupResult, name=f"saved{n}")
            is_saved = Signal(name=f"is_saved{n}")  # the result is in `saved`
            taken = result.valid & result.ready
            m.d.comb += [
                result.valid.eq(is_saved | owner[n]),
                result.p.eq(Mux(is_saved, saved, found)),
                eligible[n].eq(request.valid & ~busy),
                request.ready.eq(done & (chosen == n)),
            ]
            m.d.sync += [is_saved.eq(result.valid & ~result.ready), saved.eq(result.p),
                         busy.eq(request.ready | busy & ~taken)]
        return m

    def _search(self, m, pending, query, searching, done, answer):
        """Search for the ``query`` while it is ``pending``.

        ``searching`` is 1 from the second cycle on; with ``done`` the ``answer`` is valid.
        """
        m.submodules.memory = memory = self.MEMORY(ports=self._ports)
        kind = query.kind
        index, hit, buses = Signal.like(memory.port), Signal(), Signal(self._ports)
        above = Signal()  # the upstream port claims the value
        end = Signal()  # the port that was compared is the last one
        goes_on, reading = Signal(), Signal()
        m.d.comb += [
            memory.config.eq(self.config),
            memory.port.eq(Mux(reading, self.read_port, index)),
            goes_on.eq(pending & memory.ready & ~done),
            self.read_done.eq(reading), self.read_windows.eq(memory.windows),
        ]
        m.d.sync += [
            reading.eq(self.read & memory.ready & ~reading & ~goes_on),
            searching.eq(goes_on & ~reading), index.eq(0),
            buses.eq(Cat(claims_bus(w, query.bus) for w in self.windows)),
            hit.eq(claims_address(memory.windows, query.address).bit_select(
                kind.as_value()[0], 1)),
            above.eq(claims_by_kind(self.upstream_windows, query).bit_select(kind.as_value(), 1)),
            end.eq(index == self._ports - 1),
        ]
        with m.If(goes_on & ~reading):
            m.d.sync += index.eq(index + 1)
        with m.If(searching & pending):
            m.d.comb += [
                done.eq((kind == LookupKind.BUS) | hit | end),
                answer.hit.eq(hit),
                answer.upstream.eq(above),
                answer.port.eq(Mux(hit, index - 1, 0)),
            ]
            with m.If(kind == LookupKind.BUS):
                m.d.comb += [answer.hit.eq(buses.any()), answer.port.eq(first_one(buses))]
