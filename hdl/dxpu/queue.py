"""Queues of words (:class:`Queue`) and of whole packets (:class:`PacketQueue`)."""

from amaranth import *
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import exact_log2

from .memory import DisjointMemory
from .stream import PacketLayout, PacketSignature, Register, connect

__all__ = ["Queue", "PacketQueue"]


class Queue(wiring.Component):
    """First-in first-out queue of words, with first-word fall-through.

    Throughput one word per cycle at every depth; latency one cycle up to depth 2, else two, or one
    with ``direct``.

    Parameters
    ----------
    shape : shape-like
        Shape of a word.
    depth : int
        Least number of words that fit.
    direct : bool
        Words leave the memory, which is distributed RAM then, without a register.

    Members
    -------
    i, o : stream of ``shape``
        Words in, words out.
    """

    def __init__(self, shape, *, depth, direct=False):
        if not isinstance(depth, int) or depth < 1:
            raise ValueError(f"depth must be a positive integer, not {depth!r}")
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})
        self._shape = shape
        self._depth, self._direct = depth, direct

    def elaborate(self, platform):
        m = Module()
        if self._depth <= 2:
            m.submodules.words = words = Register(self._shape)
            connect(m, wiring.flipped(self.i), words.i)
            connect(m, words.o, wiring.flipped(self.o))
            return m
        m.submodules.words = words = (fifo.SyncFIFO if self._direct else fifo.SyncFIFOBuffered)(
            width=Shape.cast(self._shape).width, depth=self._depth)
        m.d.comb += [
            words.w_data.eq(self.i.payload),
            words.w_en.eq(self.i.valid),
            self.i.ready.eq(words.w_rdy),
            Value.cast(self.o.payload).eq(words.r_data),
            self.o.valid.eq(words.r_rdy),
            words.r_en.eq(self.o.ready),
        ]
        return m


class PacketQueue(wiring.Component):
    """Store-and-forward queue of packets in block RAM: packets leave whole or not at all.

    Packets leave in order. A packet that ends with ``discard`` is removed, as is one that is larger
    than the queue. ``overflow`` says what happens to a packet that would fit an empty queue and
    finds too little space: with ``"wait"`` it waits, with ``"drop"`` it is removed whole. ``"cut"``
    is ``"wait"``, but of a packet larger than the queue the first ``depth`` beats leave, so that
    its header can still be parsed.

    Latency: the first beat is offered one cycle after the last one was taken if nothing is before
    it, two cycles if both are the same. Throughput one beat per cycle.

    Parameters
    ----------
    width : int
        Data bits per beat.
    depth : int
        Beats; a power of two.
    meta : shape-like, optional
        Side information of the packets.
    overflow : "wait", "drop" or "cut"
        What happens to a packet for which there is too little space.

    Members
    -------
    i, o : packet stream
        Packets in, packets out; ``o`` never has ``discard``.
    level : ``range(depth + 1)``
        Beats in memory, including those of an incomplete packet.
    stat_discarded : 1
        Pulse: a packet was removed because it ended with ``discard``.
    stat_overflow : 1
        Pulse: a packet was removed or cut because it did not fit.
    """

    def __init__(self, width, *, depth, meta=None, overflow="wait"):
        if not isinstance(depth, int) or depth < 2 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two of at least 2, not {depth!r}")
        if overflow not in ("wait", "drop", "cut"):
            raise ValueError(f"overflow must be 'wait', 'drop' or 'cut', not {overflow!r}")
        super().__init__({
            "i": In(PacketSignature(width, meta)),
            "o": Out(PacketSignature(width, meta)),
            "level": Out(range(depth + 1)),
            "stat_discarded": Out(1),
            "stat_overflow": Out(1),
        })
        self._layout = PacketLayout(width, meta)
        self._depth = depth
        self._wait, self._cuts = overflow != "drop", overflow == "cut"

    def elaborate(self, platform):
        m = Module()
        i, o = self.i, self.o

        # Not stored: `first`, which follows from `last`, and `discard`.
        stored = {k: f.shape for k, f in self._layout if k not in ("first", "discard")}
        m.submodules.memory = memory = DisjointMemory(
            shape=data.StructLayout(stored), depth=self._depth, init=[])
        write, read = memory.write_port(), memory.read_port()

        # Pointers carry one bit more than an address, so that full and empty differ.
        bits = exact_log2(self._depth) + 1
        tail, committed, head = Signal(bits), Signal(bits), Signal(bits)
        full, dropping = Signal(), Signal()
        #: A beat was read; it is the first one of a packet that is not whole, and may vanish.
        have, ahead = Signal(), Signal()
        oldest = Signal(bits)
        # What `ready` depends on is told by registers: a beat that has just become free counts a
        # cycle later.
        was_full, was_almost_full, wrote = Signal(), Signal(), Signal()
        m.d.comb += [
            oldest.eq(Mux(ahead, committed, head)),
            self.level.eq(tail - oldest),
            full.eq(was_full | was_almost_full & wrote),
            i.ready.eq(dropping | ~full),
            write.addr.eq(tail),
            *(write.data[k].eq(i.payload[k]) for k in stored),
        ]
        # With only the incomplete packet in memory, now as in the last cycle, space would never
        # become free.
        alone, was_alone = Signal(), Signal()
        m.d.comb += alone.eq(oldest == committed)
        m.d.sync += was_alone.eq(alone)
        hopeless = alone & was_alone if self._wait else Const(1)
        commits, removes = Signal(), Signal()
        m.d.sync += [
            was_full.eq((self.level == self._depth) & ~removes),
            was_almost_full.eq(self.level == self._depth - 1),
            wrote.eq(write.en & ~removes),
        ]
        with m.If(dropping):
            with m.If(i.valid & i.payload.last):
                m.d.sync += dropping.eq(0)
                if self._cuts:
                    # The source may still discard it.
                    m.d.comb += [removes.eq(i.payload.discard), commits.eq(~i.payload.discard),
                                 self.stat_discarded.eq(removes), self.stat_overflow.eq(commits)]
                else:
                    m.d.comb += self.stat_overflow.eq(1)
        with m.Elif(~full):
            m.d.comb += write.en.eq(i.valid)
            with m.If(i.valid & i.payload.last):
                m.d.comb += [removes.eq(i.payload.discard), commits.eq(~i.payload.discard),
                             self.stat_discarded.eq(removes)]
            if self._cuts:
                # The last free beat becomes the end of a packet that is alone and not complete.
                with m.Elif(i.valid & alone & (self.level == self._depth - 1)):
                    m.d.comb += write.data.last.eq(1)
                    m.d.sync += dropping.eq(1)
        if not self._cuts:
            with m.Elif(i.valid & hopeless):
                m.d.comb += removes.eq(1)
                m.d.sync += dropping.eq(1)
        with m.If(removes):
            m.d.sync += tail.eq(committed)
        with m.Elif(write.en):
            m.d.sync += tail.eq(tail + 1)
        with m.If(commits):
            m.d.sync += committed.eq(tail + write.en)

        first, early = Signal(init=1), Signal()
        m.d.comb += [
            early.eq(ahead | (head == committed)),
            read.addr.eq(head),
            read.en.eq((head != tail) & (~have | (o.valid & o.ready))),
            *(o.payload[k].eq(read.data[k]) for k in stored),
            o.payload.first.eq(first),
            o.valid.eq(have & ~ahead),
        ]
        with m.If(o.valid & o.ready):
            m.d.sync += [first.eq(o.payload.last), have.eq(0)]
        with m.If(read.en):
            m.d.sync += [head.eq(head + 1), have.eq(1), ahead.eq(early)]
        with m.If(commits):
            m.d.sync += ahead.eq(0)
        with m.Elif(removes & (ahead | read.en & early)):
            m.d.sync += [head.eq(committed), have.eq(0), ahead.eq(0)]
        return m
