"""Endless TLPs with predictable content, and their check; simulation only.

A *flow* is the TLPs of one class of one row. Each TLP carries its number in its flow, and the
number of posted TLPs of its row before it; all other content follows from these. So the far end
knows each byte, and counts lost, doubled, reordered and changed TLPs without a log of the TLPs
sent.
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.rows import LIFE_BITS, TlpMeta
from dxpu.stream import PacketSignature

from .chance import Chance

__all__ = ["CLASSES", "FlowSink", "FlowSource", "SinkTotals", "flow_dword", "flow_size"]

#: Classes of flows in the order of their numbers, and byte 0 of their TLPs: memory write, memory
#: read, completion with data (PCIe Base 5.0, 2.2.1), all with headers of three dwords.
CLASSES = {"p": 0x40, "np": 0x00, "cpl": 0x4A}
HEADER = 3
#: Number of TLPs before the expected TLP whose arrival is remembered.
WINDOW = 64


def _hash(m, flow, number, index, name):
    """32 bits that depend on all bits of a TLP's flow and number, and of an index."""
    a, b, c = (Signal(32, name=f"{name}_{k}") for k in "abc")
    m.d.comb += [
        a.eq(number * 0x9E3779B1 + index * 0x85EBCA77 + flow * 0xC2B2AE3D),
        b.eq((a ^ (a >> 15)) * 0x2C1B3C6D),
        c.eq(b ^ (b >> 13)),
    ]
    return c


def flow_size(m, flow, cls, number, fixed, name):
    """Payload dwords of a TLP: 1, 32, or random up to 64; ``fixed`` if not 0; reads have none."""
    h, size = _hash(m, flow, number, 0x3FF, name), Signal(8, name=f"{name}_size")
    with m.If(cls == list(CLASSES).index("np")):
        m.d.comb += size.eq(0)
    with m.Elif(fixed != 0):
        m.d.comb += size.eq(fixed)
    with m.Else():
        with m.Switch(h[8:10]):
            with m.Case(0):
                m.d.comb += size.eq(1)
            with m.Case(1):
                m.d.comb += size.eq(32)
            with m.Default():
                m.d.comb += size.eq(1 + h[:6])
    return size


def flow_dword(m, *, flow, cls, number, posted, size, index, name):
    """Dword ``index`` of a TLP, its first byte in the low bits."""
    h, dword = _hash(m, flow, number, index, name), Signal(32, name=f"{name}_dword")
    with m.Switch(index):
        with m.Case(0):
            kind, length = Signal(8, name=f"{name}_kind"), Signal(8, name=f"{name}_length")
            m.d.comb += [
                kind.eq(Mux(cls == 0, CLASSES["p"], Mux(cls == 1, CLASSES["np"], CLASSES["cpl"]))),
                length.eq(Mux(size == 0, 1, size)),
                dword.eq(Cat(kind, Const(0, 16), length)),
            ]
        with m.Case(1):
            m.d.comb += dword.eq(number)
        with m.Case(2):
            m.d.comb += dword.eq(posted)
        with m.Default():
            m.d.comb += dword.eq(h)
    return dword


class FlowSource(wiring.Component):
    """Sends TLPs of randomly chosen flows, while ``enable``.

    Parameters
    ----------
    width : int
        Data bits per beat, 64 or more.
    rows : int
        Number of rows; each has three flows.
    seed : int

    Members
    -------
    o : packet stream with :class:`~dxpu.rows.TlpMeta`
    enable : 1
    most : 32
        Total number of TLPs to send.
    lives : array of numbers
        Current life of each row.
    hold : three bits per row
        No TLP of this row and class begins.
    first : 8
        Number of the first row at the other end.
    fixed : 8
        Payload dwords of each TLP; then all TLPs are posted and of row 0. 0: random traffic.
    pause : 16
        Probability, in 1/65536, of an idle cycle, for each cycle between TLPs.
    salt : 32
        Restarts the random numbers (:class:`~.chance.Chance`).
    abort : 1
        Ends the TLP under way at once; the TLP counts as made.
    made : 32
    """

    def __init__(self, width, *, rows, seed):
        self._width, self._rows, self._seed = width, rows, seed
        super().__init__({
            "o": Out(PacketSignature(width, TlpMeta)), "enable": In(1), "most": In(32),
            "lives": In(data.ArrayLayout(LIFE_BITS, rows)), "hold": In(3 * rows),
            "first": In(8), "fixed": In(8), "pause": In(16), "salt": In(32), "abort": In(1),
            "made": Out(32),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, o = self._width // 32, self.o
        m.submodules.chance = chance = Chance(seed=self._seed)
        m.d.comb += chance.salt.eq(self.salt)
        numbers = [Signal(32, name=f"number{n}") for n in range(3 * self._rows)]
        row, cls, flow = Signal(range(self._rows)), Signal(2), Signal(range(3 * self._rows))
        number, posted, size = Signal(32), Signal(32), Signal(8)
        beat, active, life = Signal(8), Signal(), Signal(LIFE_BITS)
        next_row, next_cls = Signal.like(row), Signal(2)
        next_flow = Signal.like(flow)
        m.d.comb += [
            next_row.eq(Mux(self.fixed != 0, 0, (chance.value[:16] * self._rows) >> 16)),
            next_cls.eq(Mux(self.fixed != 0, 0, Mux(chance.value[16], 0, 1 + chance.value[17]))),
            next_flow.eq(3 * next_row + next_cls),
        ]
        next_number, next_posted = Signal(32), Signal(32)
        m.d.comb += [next_number.eq(Array(numbers)[next_flow]),
                     next_posted.eq(Array(numbers[::3])[next_row])]
        begin = Signal(10)
        m.d.comb += begin.eq(3 * self.first)
        next_size = flow_size(m, begin + next_flow, next_cls, next_number, self.fixed, "next")
        end = o.valid & o.ready & o.payload.last
        with m.If(self.abort):
            m.d.sync += active.eq(0)
        with m.Elif((~active | end) & self.enable & (self.made != self.most)
                    & ~self.hold.bit_select(next_flow, 1) & (chance.value[20:36] >= self.pause)):
            m.d.sync += [
                active.eq(1), row.eq(next_row), cls.eq(next_cls), flow.eq(next_flow),
                number.eq(next_number), posted.eq(next_posted),
                size.eq(next_size), self.made.eq(self.made + 1),
                life.eq(Array(self.lives)[next_row]),
                Array(numbers)[next_flow].eq(next_number + 1),
            ]
        with m.Elif(end):
            m.d.sync += active.eq(0)
        with m.If(o.valid & o.ready | self.abort):
            m.d.sync += beat.eq(Mux(o.payload.last | self.abort, 0, beat + 1))
        left = Signal(9)
        m.d.comb += [
            left.eq(HEADER + size - beat * lanes),
            o.valid.eq(active),
            o.payload.first.eq(beat == 0),
            o.payload.last.eq(left <= lanes),
            o.payload.dwords.eq(Mux(left <= lanes, left, lanes)),
            o.payload.meta.row.eq(row),
            o.payload.meta.life.eq(life),
            o.payload.data.eq(Cat(
                flow_dword(m, flow=begin + flow, cls=cls, number=number, posted=posted, size=size,
                           index=(beat * lanes + n)[:10], name=f"lane{n}") for n in range(lanes))),
        ]
        return m


class SinkTotals(data.Struct):
    """Numbers of TLPs, payload dwords and errors.

    ``lost``: TLP numbers left out that have not come since. ``reordered``: TLPs that came after a
    later number. ``passed``: non-posted TLPs and completions that came before an earlier posted
    TLP. ``cycle``: cycle of the last TLP, counted from reset.
    """

    tlps: 32
    cycle: 32
    payload: 48
    lost: 32
    doubled: 32
    reordered: 32
    passed: 32
    changed: 32


class FlowSink(wiring.Component):
    """Takes the TLPs of a :class:`FlowSource` and checks each dword.

    A TLP cut by a reset of the engine does not count.

    Parameters
    ----------
    width, rows
        As for the source.
    seed : int

    Members
    -------
    i : packet stream with :class:`~dxpu.rows.TlpMeta`
    fixed : 8
        As for the source.
    stall : 16
        Probability, in 1/65536, of a cycle in which no beat is taken.
    shut : 1
        No beat is taken.
    salt : 32
    totals : :class:`SinkTotals`
    """

    def __init__(self, width, *, rows, seed):
        self._width, self._rows, self._seed = width, rows, seed
        super().__init__({
            "i": In(PacketSignature(width, TlpMeta)), "fixed": In(8), "stall": In(16),
            "shut": In(1), "salt": In(32), "totals": Out(SinkTotals),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, i = self._width // 32, self.i
        m.submodules.chance = chance = Chance(seed=self._seed)
        m.d.comb += chance.salt.eq(self.salt)
        expected = [Signal(32, name=f"expected{n}") for n in range(3 * self._rows)]
        windows = [Signal(WINDOW, name=f"window{n}", init=-1) for n in range(3 * self._rows)]
        totals = self.totals

        # Flow and number of this TLP, from its first beat and kept for later beats.
        payload, row = i.payload, i.payload.meta.row
        old_cls, old_number, old_wrong, beat = Signal(2), Signal(32), Signal(), Signal(8)
        cls, number, flow = Signal(2), Signal(32), Signal(range(3 * self._rows))
        wrong = Signal(lanes)
        kind, first = payload.data[:8], payload.first
        m.d.comb += [
            cls.eq(Mux(first, Mux(kind == CLASSES["p"], 0, Mux(kind == CLASSES["np"], 1, 2)),
                       old_cls)),
            number.eq(Mux(first, payload.data[32:64], old_number)),
            flow.eq(3 * row + cls),
            i.ready.eq(~self.shut & (chance.value[:16] >= self.stall)),
        ]
        size = flow_size(m, flow, cls, number, self.fixed, "this")
        position = Mux(first, 0, beat)
        index = position * lanes
        stamp, old_stamp = Signal(32), Signal(32)
        at, lane = divmod(2, lanes)
        m.d.comb += stamp.eq(Mux(position == at, payload.data.word_select(lane, 32), old_stamp))
        for n in range(lanes):
            # The posted number is checked separately.
            value = flow_dword(m, flow=flow, cls=cls, number=number, posted=stamp, size=size,
                               index=(index + n)[:10], name=f"lane{n}")
            m.d.comb += wrong[n].eq((payload.data.word_select(n, 32) != value)
                                    & (payload.dwords > n))
        cycle = Signal(32)
        m.d.sync += cycle.eq(cycle + 1)
        taken = i.valid & i.ready
        whole = (index + payload.dwords) == HEADER + size
        bad = Signal()
        m.d.comb += bad.eq(~first & old_wrong | wrong.any() | (payload.last & ~whole)
                           | (row >= self._rows) | payload.last & payload.discard)
        with m.If(taken):
            m.d.sync += [old_cls.eq(cls), old_number.eq(number), old_wrong.eq(bad),
                         old_stamp.eq(stamp), beat.eq(position + 1)]

        # Position of the TLP in its flow.
        ahead, window, back = Signal(32), Signal(WINDOW), Signal(32)
        known, is_p = Signal(), cls == 0
        m.d.comb += [
            ahead.eq(number - Array(expected)[flow]),
            window.eq(Array(windows)[flow]),
            back.eq(~ahead),
            known.eq(Mux(back < WINDOW, window.bit_select(back[:6], 1), 1)),
        ]
        sent_before = Mux(is_p, number, Array(expected[::3])[row])
        old = ahead[31]
        with m.If(taken & payload.last):
            m.d.sync += [
                totals.tlps.eq(totals.tlps + 1),
                totals.cycle.eq(cycle),
                totals.payload.eq(totals.payload + size),
                totals.changed.eq(totals.changed + bad),
                totals.passed.eq(totals.passed + Mux(
                    is_p, stamp != number, (sent_before - stamp)[31])),
            ]
            with m.If(old):
                m.d.sync += [
                    totals.doubled.eq(totals.doubled + known),
                    totals.reordered.eq(totals.reordered + (known == 0)),
                    totals.lost.eq(totals.lost - (known == 0)),
                    Array(windows)[flow].eq(Mux(back < WINDOW, window | (1 << back[:6]), window)),
                ]
            with m.Else():
                m.d.sync += [
                    totals.lost.eq(totals.lost + ahead),
                    Array(expected)[flow].eq(number + 1),
                    Array(windows)[flow].eq(Mux(
                        ahead < WINDOW - 1, (window << (ahead[:6] + 1) | 1)[:WINDOW], 1)),
                ]
        return m
