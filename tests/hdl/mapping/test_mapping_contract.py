"""Contracts of dxpu.mapping: lookups agree with a sequential search, rows change as a whole."""

import pytest
from amaranth import *
from amaranth.hdl import Assert, Assume
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In

from dxpu.mapping import (
    Binding, CommitCode, ConfigUpdate, Lookup, LookupKind, LookupRequest, LookupResult, PortWindows,
    RowChange, RowCommit, WindowFollower,
)
from dxpu.mapping.lookup import SharedLookup
from dxpu.mapping.windows import WindowMemory
from tests.support.formal import ProofFailed, prove
from tests.support.mutate import mutant

PORTS = 4


def search(m, windows, upstream, request, name="found"):
    """The reference: ask one port after the other, stop at the first that claims; and ask the
    upstream port."""
    found, done = Signal(LookupResult, name=name), C(0, 1)
    value = request.address
    for n, w in enumerate((*windows, upstream)):
        address = value[32:].any(), value[:32]
        memory = ~address[0] & (address[1] >= Cat(C(0, 20), w.memory_base)) & (
            address[1] <= Cat(C(0xfffff, 20), w.memory_limit))
        prefetch = (value >= Cat(C(0, 20), w.prefetch_base)) & (
            value <= Cat(C(0xfffff, 20), w.prefetch_limit))
        port = address[1]
        io = (port >= Cat(C(0, 12), w.io_base)) & (port <= Cat(C(0xfff, 12), w.io_limit))
        bus = ((request.bus >= w.secondary) & (request.bus <= w.subordinate)
               & (w.secondary != 0))
        claims = Signal(name=f"{name}_claims_{n}")
        with m.Switch(request.kind):
            with m.Case(LookupKind.MEMORY):
                m.d.comb += claims.eq((memory | prefetch) & w.memory_enable)
            with m.Case(LookupKind.IO):
                m.d.comb += claims.eq(io & w.io_enable)
            with m.Case(LookupKind.BUS):
                m.d.comb += claims.eq(bus)
        if n == len(windows):
            m.d.comb += found.upstream.eq(claims)
            break
        with m.If(claims & ~done):
            m.d.comb += [found.hit.eq(1), found.port.eq(n)]
        done = done | claims
    return found


class LookupContract(wiring.Component):
    """Every request gets exactly one result, in order: that of a search from port 0 upwards.

    Windows, requests (full width) and both sides' readiness are free in every cycle; only an
    offered request is held, as the stream rules demand. With ``result.ready`` high the result is
    there two cycles after its request.
    """

    windows: In(data.ArrayLayout(PortWindows, PORTS))
    upstream: In(PortWindows)
    request: In(LookupRequest)
    valid: In(1)
    ready: In(1)

    def __init__(self, design=Lookup):
        super().__init__()
        self._design = design

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self._design(ports=PORTS)
        m.d.comb += [
            dut.windows.eq(self.windows), dut.upstream_windows.eq(self.upstream),
            dut.request.p.eq(self.request),
            dut.request.valid.eq(self.valid), dut.result.ready.eq(self.ready),
        ]
        # The stream rules for the source.
        waiting, offered = Signal(), Signal(LookupRequest)
        m.d.sync += [waiting.eq(self.valid & ~dut.request.ready), offered.eq(self.request)]
        with m.If(waiting):
            m.d.comb += Assume(self.valid & (Value.cast(self.request) == Value.cast(offered)))

        # What is under way: at most two, oldest first.
        found = search(m, self.windows, self.upstream, self.request)
        asked, taken = dut.request.valid & dut.request.ready, dut.result.valid & self.ready
        queue, count = Signal(data.ArrayLayout(LookupResult, 3)), Signal(range(4))
        level = count - taken
        m.d.sync += count.eq(level + asked)
        with m.If(taken):
            m.d.sync += [queue[0].eq(queue[1]), queue[1].eq(queue[2])]
        for n in range(3):
            with m.If(asked & (level == n)):
                m.d.sync += queue[n].eq(found)
        with m.If(dut.result.valid):
            m.d.comb += Assert(count != 0)
            m.d.comb += Assert(Value.cast(dut.result.p) == Value.cast(queue[0]))
        m.d.comb += Assert(count <= 2)

        # The result is offered two cycles after its request if nothing holds it, and then held.
        age = Signal(2)
        m.d.sync += age.eq(Cat(asked, age))
        with m.If(age[1] & (count == 1)):
            m.d.comb += Assert(dut.result.valid | age[0])
        with m.If(count == 2):
            m.d.comb += Assert(dut.result.valid)
        stalled = Signal()
        m.d.sync += stalled.eq(dut.result.valid & ~self.ready)
        with m.If(stalled):
            m.d.comb += Assert(dut.result.valid)
        return m


class Bus0Claimed(Lookup):
    """Mutant: an unconfigured port claims bus 0."""

    def _claims(self, w, request):
        memory, io, _ = super()._claims(w, request)
        number = request.bus
        return Cat(memory, io, (number >= w.secondary) & (number <= w.subordinate))


class ShortWindow(Lookup):
    """Mutant: the last megabyte of every memory window is missing."""

    def _claims(self, w, request):
        memory, io, bus = super()._claims(w, request)
        return Cat(memory & (request.address[20:] != w.memory_limit), io, bus)


class HighestWins(Lookup):
    """Mutant: searches from the highest port down."""

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = Lookup(ports=PORTS)
        for n in range(PORTS):
            m.d.comb += inner.windows[n].eq(self.windows[PORTS - 1 - n])
        m.d.comb += inner.upstream_windows.eq(self.upstream_windows)
        wiring.connect(m, wiring.flipped(self.request), inner.request)
        wiring.connect(m, inner.result, wiring.flipped(self.result))
        m.d.comb += self.result.p.port.eq(Mux(inner.result.p.hit, PORTS - 1 - inner.result.p.port,
                                              0))
        return m


class Forgetful(Lookup):
    """Mutant: a result is gone after one cycle, taken or not."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        held = Signal()
        m.d.sync += held.eq(self.result.valid)
        with m.If(held):
            m.d.sync += self.result.valid.eq(0)
        return m


class SharedContract(wiring.Component):
    """Whoever asks gets one result for each request, and that no later than all that is under way
    takes; for the first of them it is that of a search from port 0 upwards, in windows that do not
    change meanwhile. What software reads of a port is as it was configured, and no later than a
    search takes.

    Of addresses, windows and bus numbers only the bits of the masks are free: that all bits are
    compared is shown by :class:`LookupContract`. Ports are configured by free updates; who asks
    what, and when, is free, and so is when results are taken, and when software reads.
    """

    COUNT = 2
    #: Free bits of an address that is looked up: two of each part that one register has; of a bus
    #: number; and of the value of a register.
    ADDRESS, BUS, REGISTER = 0x3_0033_3000, 3, 0x0033_3333
    #: Cycles of a search that finds nothing, until the next one begins, and of a read before it;
    #: one search may be before it.
    LONGEST = COUNT + 2

    update: In(ConfigUpdate)
    request: In(data.ArrayLayout(LookupRequest, 2))
    valid: In(2)
    ready: In(2)
    read: In(1)
    read_port: In(range(COUNT))

    def __init__(self, design=SharedLookup):
        super().__init__()
        self._design = design

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self._design(ports=self.COUNT, lookups=2)
        m.submodules.follower = follower = WindowFollower(ports=self.COUNT)
        update, age = Signal(ConfigUpdate), Signal(4)
        m.d.sync += age.eq(age + (age != 15))
        m.d.comb += [
            update.eq(self.update),
            update.value.eq(self.update.value & self.REGISTER),
            update.strobe.eq(self.update.strobe & (age >= self.COUNT) & ~self.valid.any()),
            follower.config.eq(update), dut.config.eq(update), dut.windows.eq(follower.windows),
            dut.upstream_windows.eq(follower.upstream_windows),
        ]
        reads, read_port = Signal(), Signal.like(self.read_port)  # software waits, for this port
        waited = Signal(range(self.LONGEST + 1))
        m.d.sync += [reads.eq(dut.read & ~dut.read_done), read_port.eq(dut.read_port),
                     waited.eq(Mux(dut.read & ~dut.read_done & (age >= self.COUNT), waited + 1, 0))]
        m.d.comb += [
            dut.read.eq(self.read), dut.read_port.eq(self.read_port),
            Assume(self.read_port < self.COUNT), Assert(waited < self.LONGEST),
            Assert(~dut.read_done | dut.read),
        ]
        with m.If(reads):
            m.d.comb += Assume(self.read & (self.read_port == read_port))
        with m.If(dut.read_done):
            m.d.comb += Assert(Value.cast(dut.read_windows)
                               == Value.cast(follower.windows[self.read_port]))
        for n in range(2):
            request, result = getattr(dut, f"request{n}"), getattr(dut, f"result{n}")
            m.d.comb += [request.valid.eq(self.valid[n]), request.p.eq(self.request[n]),
                         request.p.address.eq(self.request[n].address & self.ADDRESS),
                         request.p.bus.eq(self.request[n].bus & self.BUS),
                         result.ready.eq(self.ready[n])]
            m.d.comb += Assume(request.p.kind.as_value() <= LookupKind.BUS.value)
            waiting = Signal(name=f"waiting{n}")
            offered = Signal(LookupRequest, name=f"offered{n}")
            m.d.sync += [waiting.eq(request.valid & ~request.ready), offered.eq(request.p)]
            with m.If(waiting):
                m.d.comb += Assume(request.valid
                                   & (Value.cast(request.p) == Value.cast(offered)))
            owed, held = Signal(name=f"owed{n}"), Signal(name=f"held{n}")
            with m.If(result.valid):
                m.d.comb += Assert(owed)
            if n == 0:
                found = search(m, follower.windows, follower.upstream_windows, request.p)
                expected = Signal(LookupResult)
                with m.If(request.valid & request.ready):
                    m.d.sync += expected.eq(found)
                with m.If(result.valid):
                    m.d.comb += Assert(Value.cast(result.p) == Value.cast(expected))
            m.d.sync += held.eq(result.valid & ~result.ready)
            with m.If(held):
                m.d.comb += Assert(result.valid)
            with m.If(result.valid & result.ready):
                m.d.sync += owed.eq(0)
            with m.If(request.valid & request.ready):
                m.d.comb += Assert(~owed | result.valid & result.ready)
                m.d.sync += owed.eq(1)
            # Nobody waits longer, but for a result of his own that is not taken.
            late = Signal(range(2 * self.LONGEST + 2), name=f"late{n}")
            with m.If(request.valid & ~request.ready & (~owed | result.valid & result.ready)
                      & (age >= self.COUNT)):
                m.d.sync += late.eq(late + 1)
            with m.Else():
                m.d.sync += late.eq(0)
            m.d.comb += Assert(late < 2 * self.LONGEST)
        return m


class HigherFirst(SharedLookup):
    """Mutant: the port behind the one that claims an address is said to."""

    def _search(self, m, pending, query, searching, done, answer):
        super()._search(m, pending, query, searching, done, answer)
        with m.If(answer.hit & (query.kind == LookupKind.MEMORY)):
            m.d.comb += answer.port[0].eq(1)


class SecondHidden(SharedLookup):
    """Mutant: the windows of the second port are not looked at."""

    class MEMORY(WindowMemory):
        def elaborate(self, platform):
            m = super().elaborate(platform)
            with m.If(self.port == 1):
                m.d.comb += self.windows.memory_enable.eq(0)
            return m


class EndsEarly(SharedLookup):
    """Mutant: the last port is not looked at."""

    class MEMORY(WindowMemory):
        def elaborate(self, platform):
            m = super().elaborate(platform)
            with m.If(self.port == self._ports - 1):
                m.d.comb += self.windows.memory_enable.eq(0)
            return m


#: A search begins while software reads, with the port that software names.
SkipsAPort = mutant(SharedLookup, ("""        with m.If(goes_on & ~reading):
""", """        with m.If(goes_on):
"""), ("searching.eq(goes_on & ~reading)", "searching.eq(goes_on)"))


ROWS = 3


class CommitContract(wiring.Component):
    """A row changes in one cycle, to all of the command or (released) all of the old peer.

    Commands and fence are free in every cycle; a command holds while the table is busy. One
    symbolic row is watched. Never a mix of old and new; no change without ``committed`` and no
    ``committed`` without its command; nothing under a fence; nothing twice for one operation; no
    row is bound that was draining as long as its command was judged. Who looks at it sees it.
    """

    command: In(Binding)
    target: In(6)
    strobe: In(1)
    epoch: In(32)
    fence: In(32)
    raise_fence: In(1)
    draining: In(ROWS)
    watched: In(range(ROWS))

    def __init__(self, design=RowCommit):
        super().__init__()
        self._design = design

    def elaborate(self, platform):
        m = Module()
        m.submodules.dut = dut = self._design(rows=ROWS, with_slot=True)
        m.d.comb += [
            dut.command.strobe.eq(self.strobe), dut.command.row.eq(self.target),
            dut.command.epoch.eq(self.epoch), dut.command.binding.eq(self.command),
            dut.fence.strobe.eq(self.raise_fence), dut.fence.epoch.eq(self.fence),
            dut.draining.eq(self.draining), dut.read_row.eq(self.watched),
        ]
        started, stable = Signal(), Signal(Value.cast(self.command).shape().width + 6 + 32)
        chosen, busy = Signal(range(ROWS)), Signal()
        everything = Cat(self.command, self.target, self.epoch)
        m.d.sync += [started.eq(1), busy.eq(dut.busy), stable.eq(everything),
                     chosen.eq(self.watched)]
        with m.If(started):
            m.d.comb += Assume(self.watched == chosen)
        m.d.comb += Assume(self.watched < ROWS)
        with m.If(busy):
            m.d.comb += Assume(everything == stable)

        row, before, command = Signal(Binding), Signal(Binding), Signal(Binding)
        for n in range(ROWS):
            with m.If(self.watched == n):
                m.d.comb += row.eq(dut.rows[n])
        # Whether the row drained from the command's cycle to the one before the verdict.
        draining, drained = Signal(), Signal()
        m.d.comb += draining.eq(self.draining.bit_select(self.watched, 1))
        m.d.sync += drained.eq(draining & (drained | ~busy))
        # The command and the fence as they were when it was given.
        m.d.sync += before.eq(row)
        target, fenced = Signal(6), Signal()
        with m.If(self.strobe & ~busy):
            m.d.sync += [command.eq(self.command), target.eq(self.target),
                         fenced.eq(self.epoch < dut.fence_epoch)]

        with m.If(~dut.busy):
            m.d.comb += Assert(Value.cast(dut.read_binding) == Value.cast(row))
        changed = Signal()
        m.d.comb += changed.eq(started & (Value.cast(row) != Value.cast(before)))
        whole = Signal(Binding)
        m.d.comb += whole.eq(command)
        with m.If(~command.used):
            m.d.comb += [whole.eq(before), whole.used.eq(0),
                         whole.generation.eq(command.generation),
                         whole.operation_id.eq(command.operation_id)]
        event = dut.row_event.strobe & (dut.row_event.row == self.watched)
        with m.If(changed):
            m.d.comb += Assert(event)
        with m.If(event):
            m.d.comb += [
                Assert(Value.cast(row) == Value.cast(whole)),
                Assert(target == self.watched),
                Assert(~fenced),
                Assert(dut.code == CommitCode.DONE),
                Assert(dut.code_operation_id == row.operation_id),
                Assert(dut.row_event.previous == before.generation),
                Assert((dut.row_event.change == RowChange.BOUND) == (row.used & ~before.used)),
                Assert((dut.row_event.change == RowChange.RELEASED) == (~row.used & before.used)),
                Assert(row.operation_id != 0),
            ]
            twice = ((row.operation_id == before.operation_id)
                     & (row.generation == before.generation))
            m.d.comb += Assert(~twice)
            with m.If(row.used & ~before.used):
                m.d.comb += Assert(~drained)
            with m.If(row.used & before.used):
                m.d.comb += Assert(Cat(row.node, row.slot, row.stream, row.generation) == Cat(
                    before.node, before.slot, before.stream, before.generation))
        with m.If(~dut.busy & busy):
            m.d.comb += Assert(dut.code != CommitCode.NONE)
        lowest = Signal(32)
        m.d.sync += lowest.eq(dut.fence_epoch)
        m.d.comb += Assert(dut.fence_epoch >= lowest)
        return m


class Shortcut(RowCommit):
    """Mutant: the stream of a used row follows the shadow register at once."""

    def elaborate(self, platform):
        m = super().elaborate(platform)
        with m.If(~self.busy & self.rows[1].used):
            m.d.sync += self.rows[1].stream.eq(self.command.binding.stream)
        return m


class Torn(RowCommit):
    """Mutant: the operation id of a row is written one cycle late."""

    def elaborate(self, platform):
        m = Module()
        m.submodules.inner = inner = RowCommit(rows=ROWS, with_slot=True)
        for name in self.signature.members:
            source, sink = getattr(inner, name), getattr(self, name)
            if name in ("command", "draining", "fence", "read_row"):
                source, sink = sink, source
            m.d.comb += sink.eq(source)
        late = Signal(data.ArrayLayout(Binding, ROWS))
        m.d.sync += late.eq(inner.rows)
        m.d.comb += [self.rows[n].operation_id.eq(late[n].operation_id) for n in range(ROWS)]
        return m


def without(fact):
    """Mutant: a rule that never applies."""
    class Lawless(RowCommit):
        def _compare(self, m, checks, *arguments):
            super()._compare(m, checks, *arguments)
            m.d.sync += checks[fact].eq(0)
    return Lawless


def test_lookup_agrees_with_a_search():
    prove(LookupContract(), depth=7)


@pytest.mark.parametrize("mutant", [Bus0Claimed, ShortWindow, HighestWins, Forgetful])
def test_lookup_contract_catches(mutant):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(LookupContract(mutant), depth=7)


def test_shared_lookups_agree_with_a_search():
    prove(SharedContract(), depth=8, flat=True)


@pytest.mark.parametrize("design", [HigherFirst, SecondHidden, EndsEarly, SkipsAPort])
def test_contract_of_shared_lookups_catches(design):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(SharedContract(design), depth=8, flat=True)


def test_rows_change_as_a_whole():
    prove(CommitContract(), depth=13)


@pytest.mark.parametrize("mutant", [Shortcut, Torn, without("repeated"), without("fenced"),
                                    without("draining")])
def test_commit_contract_catches(mutant):
    with pytest.raises(ProofFailed, match="Assert failed"):
        prove(CommitContract(mutant), depth=13)
