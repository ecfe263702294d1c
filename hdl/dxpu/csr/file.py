"""Decoder of a register block."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.priority import one_hot_mux

from .description import Access, Block, Rows
from .port import RegisterPort

__all__ = ["RegisterFile"]

_RESERVED = {"bus", "stall", "mem_address", "mem_request", "mem_write", "mem_write_data",
             "mem_read_data", "mem_done", "signature", "elaborate", "metadata"}


def _members(register):
    """Signals of a register as a signature."""
    members = {"written": Out(1)} if register.writable else {}
    taken = [name for f in register.fields for name in _names(f)] + ["written", "signature"]
    for name in taken:
        if taken.count(name) > 1:
            raise ValueError(f"Signal {name} of register {register.name} would be there twice")
    for f in register.fields:
        match f.access:
            case Access.RO:
                members[f.name] = In(f.width)
            case Access.RW:
                members[f.name] = Out(f.width, init=f.reset)
            case Access.W1C:
                members[f.name] = Out(f.width, init=f.reset)
                members[f"{f.name}_set"] = In(f.width)
            case Access.PULSE:
                members[f.name] = Out(f.width)
            case Access.WO:
                members[f"{f.name}_w"] = Out(f.width)
            case Access.HW:
                members[f.name] = In(f.width)
                members[f"{f.name}_w"] = Out(f.width)
    return wiring.Signature(members)


def _names(f):
    """Names of the signals of a field."""
    suffixes = {Access.W1C: ("", "_set"), Access.HW: ("", "_w"), Access.WO: ("_w",),
                Access.CONST: ()}
    return [f.name + suffix for suffix in suffixes.get(f.access, ("",))]


class RegisterFile(wiring.Component):
    """Registers of a :class:`~dxpu.csr.Block`, with a named signal for each field.

    A response is offered two cycles after its request was taken, or later if the register is in a
    memory that needs more time; one request at a time. A write takes effect before its response:
    new values, ``written`` and pulses are valid in the cycle in which the response is offered. An
    address without a register, an address that is no multiple of 4 and a write to a register that
    cannot be written are answered with ``error`` and change nothing.

    Parameters
    ----------
    block : Block
        Description of the registers.

    Members
    -------
    bus : In :class:`RegisterPort`
        Port of the master.
    stall : In(1)
        No new request is taken while this is 1, such as while a command runs.
    mem_request, mem_address : Out(1), Out(16)
        Access to a register in a memory of the hardware (``mem``, ``mem_hw``), with its byte
        address from the start of the block. The request is held until ``mem_done``. Only if the
        block has such registers, as the next two.
    mem_done, mem_read_data : In(1), In(32)
        The access is done, in this cycle; value of the register.
    mem_write, mem_write_data : Out(1), Out(32)
        The access is a write, of this value. Only if the block has ``mem_hw`` registers.
    <register>.<field>, <rows>[n].<register>.<field>
        By access kind: ``ro`` In; ``rw`` Out; ``pulse`` Out, for one cycle; ``w1c`` Out, and
        ``<field>_set`` In; ``hw`` In (the value read), and ``<field>_w`` Out (the value written,
        valid with ``written``); ``wo`` the latter only; ``mem``, ``mem_hw`` and ``const`` none.
    <register>.written : Out(1)
        Pulse after each write to a register that can be written.
    """

    def __init__(self, block):
        if not isinstance(block, Block):
            raise TypeError(f"Description must be a Block, not {block!r}")
        members = {"bus": In(RegisterPort()), "stall": In(1)}
        if any(p.register.stored for p in block.placed):
            members |= {"mem_address": Out(16), "mem_request": Out(1),
                        "mem_read_data": In(32), "mem_done": In(1, init=1)}
        if any(p.register.stored and p.register.writable for p in block.placed):
            members |= {"mem_write": Out(1), "mem_write_data": Out(32)}
        for e in block.entries:
            if e.name in _RESERVED:
                raise ValueError(f"Entry of a block must not be named {e.name!r}")
            if isinstance(e, Rows):
                rows = wiring.Signature({r.name: Out(_members(r)) for r in e.registers
                                         if not r.stored})
                members[e.name] = Out(rows).array(e.count)
            else:
                members[e.name] = Out(_members(e))
        super().__init__(members)
        self.block = block

    def _signals(self, placed):
        if placed.rows is None:
            return getattr(self, placed.register.name)
        return getattr(getattr(self, placed.rows.name)[placed.index], placed.register.name)

    def elaborate(self, platform):
        m = Module()
        placed = [p for p in self.block.placed if not p.register.stored]
        address = self.bus.request.p.address
        stored = len(placed) < len(self.block.placed)
        in_memory, writes_memory = Signal(), Signal()  # stay 0 without registers in memories
        write, value = Signal(), Signal(32, reset_less=True)
        chosen = Signal(len(placed))
        executing = Signal()

        decode = _Decoder(m, address)
        with m.FSM():
            with m.State("Idle"):
                m.d.comb += self.bus.request.ready.eq(~self.stall)
                m.d.sync += [write.eq(self.bus.request.p.write), value.eq(self.bus.request.p.data)]
                m.d.sync += [chosen[n].eq(decode(p.address)) for n, p in enumerate(placed)]
                if stored:
                    m.d.sync += [
                        self.mem_address.eq(address), in_memory.eq(self._is_stored(address)),
                        writes_memory.eq(self._is_stored(address, writable=True)
                                         & self.bus.request.p.write)]
                with m.If(self.bus.request.valid & ~self.stall):
                    m.next = "Execute"
            with m.State("Execute"):
                m.d.comb += executing.eq(1)
                m.next = "Answer"
                if stored:
                    m.d.comb += self.mem_request.eq(in_memory & (~write | writes_memory))
                    with m.If(self.mem_request & ~self.mem_done):
                        m.next = "Execute"
            with m.State("Answer"):
                m.d.comb += self.bus.response.valid.eq(1)
                with m.If(self.bus.response.ready):
                    m.next = "Idle"

        reads, writable = [], []
        for n, p in enumerate(placed):
            written = Signal()
            m.d.comb += written.eq(executing & write & chosen[n])
            reads.append(self._register(m, p, written, value))
            writable.append(p.register.writable)
        readonly = C(sum(1 << n for n, w in enumerate(writable) if not w), len(placed))
        answer = self.bus.response.p
        with m.If(executing):
            m.d.sync += [
                answer.data.eq(Mux(write, 0, (one_hot_mux(chosen, reads) if reads else 0)
                                   | (Mux(in_memory, self.mem_read_data, 0) if stored else 0))),
                answer.error.eq(~(chosen.any() | in_memory)
                                | write & ((chosen & readonly).any()
                                           | in_memory & ~writes_memory)),
            ]
        if hasattr(self, "mem_write"):
            m.d.comb += [self.mem_write.eq(writes_memory), self.mem_write_data.eq(value)]
        return m

    def _is_stored(self, address, *, writable=False):
        """Whether a register in a memory has that address, and can be written if ``writable``."""
        hits = []
        for e in self.block.entries:
            places = [r.address for r in e.registers if r.stored and (r.writable or not writable)
                      ] if isinstance(e, Rows) else []
            if places:
                low, high = exact_log2(e.stride), exact_log2(e.span)
                hits.append((address[high:] == e.address >> high)
                            & (address[low:high] < e.count)
                            & Cat(address[:low] == place for place in places).any())
        return Cat(hits).any()

    def _register(self, m, placed, written, value):
        """Make one register; returns the value that it reads as."""
        signals, read = self._signals(placed), [C(0, 1)] * 32
        if placed.register.writable:
            m.d.sync += signals.written.eq(written)
        for f in placed.register.fields:
            bits = value[f.offset:f.offset + f.width]
            signal = getattr(signals, f.name, None)
            now = signal
            match f.access:
                case Access.RW:
                    with m.If(written):
                        m.d.sync += signal.eq(bits)
                case Access.W1C:
                    cleared = bits & written.replicate(f.width)
                    m.d.sync += signal.eq((signal & ~cleared) | getattr(signals, f"{f.name}_set"))
                case Access.PULSE:
                    m.d.sync += signal.eq(bits & written.replicate(f.width))
                    now = C(0, f.width)
                case Access.HW:
                    m.d.comb += getattr(signals, f"{f.name}_w").eq(bits)
                case Access.WO:
                    m.d.comb += getattr(signals, f"{f.name}_w").eq(bits)
                    now = C(0, f.width)
                case Access.CONST:
                    now = C(f.reset, f.width)
            read[f.offset:f.offset + f.width] = list(now)
        return Cat(*read)


class _Decoder:
    """Address comparisons in two halves, which the registers share."""

    def __init__(self, m, address):
        self._m, self._address, self._known = m, address, {}

    def _half(self, start, stop, value):
        key = start, value
        if key not in self._known:
            self._known[key] = hit = Signal(name=f"address_{start}_{value:x}")
            self._m.d.comb += hit.eq(self._address[start:stop] == value)
        return self._known[key]

    def __call__(self, address):
        return self._half(0, 6, address & 0x3f) & self._half(6, 16, address >> 6)
