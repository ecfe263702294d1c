"""Puts the parts of TLPs together.

Ref: docs/reference/wire-format.md, "HDR and DATA, the split form"
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from dxpu.rows import TlpMeta
from dxpu.stream import PacketSignature, check_width

from .open_tlps import PartMeta

__all__ = ["Reassembler"]


class Reassembler(wiring.Component):
    """Collects parts of several TLPs at a time in block RAM and sends each on when it is whole.

    Whole TLPs pass through. Everything leaves in the order in which it came to its end. Parts are
    trusted: they come in order and never exceed ``rows`` beats, and a first part empties its place.

    The memory is one bank for each lane. A beat of any number of dwords is turned to the lane at
    which the TLP goes on, and written in one cycle, to two rows if need be. So parts need not be
    whole beats and the TLP is read in whole ones.

    Latency: none for whole TLPs; else the first beat is offered four cycles after the last of the
    last part was taken. Throughput: a beat per cycle; no part is taken while a TLP is sent.

    Parameters
    ----------
    width : int
        Data bits per beat.
    count : int
        Places.
    rows : int
        Beats of each place.

    Members
    -------
    i : packet stream with :func:`~.open_tlps.PartMeta`
        A beat of a part may have any number of dwords; lanes past them are don't-care.
    o : packet stream with :class:`~dxpu.rows.TlpMeta`
    idle : 1
        No whole TLP is here.
    """

    def __init__(self, width, *, count, rows):
        self._lanes = check_width(width) // 32
        self._count = count
        self._rows = rows
        super().__init__({
            "i": In(PacketSignature(width, PartMeta(count))),
            "o": Out(PacketSignature(width, TlpMeta)),
            "idle": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        lanes, rows = self._lanes, self._rows
        i, o, meta = self.i, self.o, self.i.payload.meta
        bases = Array(Const(n * rows, range(self._count * rows)) for n in range(self._count))

        fill = Array(Signal(range(rows * lanes + 1), name=f"fill{n}") for n in range(self._count))
        start, after = (Signal(range(rows * lanes + 1), name=n) for n in ("start", "after"))
        m.d.comb += [
            start.eq(Mux(meta.start & i.payload.first, 0, fill[meta.place])),
            after.eq(start + i.payload.dwords),
        ]
        write = Signal()
        reads = self._memory(m, write, start, bases[meta.place])

        row, end, tail = Signal(range(rows + 1)), Signal(range(rows + 1)), Signal(range(lanes + 1))
        base = Signal(range(self._count * rows))
        held, first, last = Signal(), Signal(), Signal()
        more, fetch = row != end, Signal()
        owner = Signal(TlpMeta)
        for read in reads:
            m.d.comb += [read.addr.eq(base + row), read.en.eq(fetch)]

        m.d.comb += [o.payload[k].eq(i.payload[k]) for k in ("data", "dwords", "first", "last")]
        m.d.comb += o.payload.meta.row.eq(meta.row)
        with m.FSM() as fsm:
            with m.State("Take"):
                m.d.comb += [
                    o.valid.eq(i.valid & ~meta.part),
                    i.ready.eq(o.ready | meta.part),
                    write.eq(i.valid & meta.part),
                ]
                with m.If(write):
                    m.d.sync += [
                        fill[meta.place].eq(after),
                        row.eq(0),
                        end.eq((after + (lanes - 1)) >> exact_log2(lanes)),
                        tail.eq((after - 1)[:exact_log2(lanes)] + 1),
                        base.eq(bases[meta.place]),
                        owner.row.eq(meta.row),
                    ]
                    with m.If(i.payload.last & meta.final):
                        m.next = "Settle"
            with m.State("Settle"):             # the last beat is being written
                m.next = "Give"
            with m.State("Give"):
                m.d.comb += [
                    fetch.eq(more & (~held | o.ready)),
                    o.valid.eq(held),
                    o.payload.data.eq(Cat(read.data for read in reads)),
                    o.payload.dwords.eq(Mux(last, tail, lanes)),
                    o.payload.first.eq(first),
                    o.payload.last.eq(last),
                    o.payload.meta.eq(owner),
                ]
                with m.If(o.ready):
                    m.d.sync += held.eq(0)
                with m.If(fetch):
                    m.d.sync += [
                        held.eq(1), first.eq(row == 0), last.eq(row + 1 == end), row.eq(row + 1)]
                with m.If(held & o.ready & last):
                    m.next = "Take"
        m.d.comb += self.idle.eq(fsm.ongoing("Take"))
        return m

    def _memory(self, m, write, start, base):
        """The banks, with the way into them; returns their read ports."""
        lanes, i = self._lanes, self.i
        steps = exact_log2(lanes)
        turn = start[:steps]
        words, mask = i.payload.data, Cat(i.payload.dwords > n for n in range(lanes))
        for n in range(steps):
            words = Mux(turn[n], words.rotate_left(32 << n), words)
            mask = Mux(turn[n], mask.rotate_left(1 << n), mask)
        turned, enable = Signal(32 * lanes, reset_less=True), Signal(lanes)
        here, wrapped = Signal.like(base, reset_less=True), Signal(lanes, reset_less=True)
        m.d.sync += [
            turned.eq(words),
            enable.eq(Mux(write, mask, 0)),
            here.eq(base + (start >> steps)),
            wrapped.eq(Cat(turn > n for n in range(lanes))),
        ]
        reads = []
        for n in range(lanes):
            m.submodules[f"bank{n}"] = bank = Memory(
                shape=32, depth=self._count * self._rows, init=[])
            port = bank.write_port()
            m.d.comb += [
                port.addr.eq(here + wrapped[n]),
                port.data.eq(turned.word_select(n, 32)),
                port.en.eq(enable[n]),
            ]
            reads.append(bank.read_port())
        return reads
