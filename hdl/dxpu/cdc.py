"""Clock domain crossings: a queue for streams and a wire for events.

Both sit only at the edge of the design (MAC, PCIe attach, board top); everything between is one
clock domain.
"""

from amaranth import *
from amaranth.lib import stream, wiring
from amaranth.lib.cdc import FFSynchronizer
from amaranth.lib.fifo import AsyncFIFOBuffered
from amaranth.lib.wiring import In, Out

from .stream import PacketLayout

__all__ = ["AsyncPacketQueue", "AsyncQueue", "EventCrossing"]


class AsyncQueue(wiring.Component):
    """First-word-fall-through queue between two clock domains of any relation.

    Words leave in order, each once. A reset of ``i_domain`` empties the queue, so a packet may lose
    its end. A reset of ``o_domain`` leaves the queue as it is, so a packet may lose its beginning.
    A user that carries packets must mark first and last beats and handle both.

    Latency from the edge that takes a word to the edge after which it is offered: one ``i_domain``
    cycle, three to four ``o_domain`` cycles. Throughput one word per cycle of the slower clock,
    if ``depth`` is at least 8.

    Parameters
    ----------
    shape : shape-like
        Payload.
    depth : int
        Words in the memory; a power of two, 4 or more. The output register has one more.
    i_domain, o_domain : str
        Clock domains of ``i`` and ``o``.

    Members
    -------
    i, o : stream of ``shape``
        Words in, in ``i_domain``, and out, in ``o_domain``.
    """

    def __init__(self, shape, *, depth, i_domain, o_domain):
        if not isinstance(depth, int) or depth < 4 or depth & (depth - 1):
            raise ValueError(f"depth must be a power of two and at least 4, not {depth!r}")
        super().__init__({"i": In(stream.Signature(shape)), "o": Out(stream.Signature(shape))})
        self._depth = depth
        self._i_domain = i_domain
        self._o_domain = o_domain

    def elaborate(self, platform):
        m = Module()
        m.submodules.fifo = fifo = AsyncFIFOBuffered(
            width=len(Value.cast(self.i.payload)), depth=self._depth + 1,
            w_domain=self._i_domain, r_domain=self._o_domain)
        m.d.comb += [
            fifo.w_data.eq(self.i.payload),
            fifo.w_en.eq(self.i.valid),
            self.i.ready.eq(fifo.w_rdy),
            Value.cast(self.o.payload).eq(fifo.r_data),
            self.o.valid.eq(fifo.r_rdy),
            fifo.r_en.eq(self.o.ready),
        ]
        return m


class AsyncPacketQueue(AsyncQueue):
    """:class:`AsyncQueue` for the beats of packets; cut-through, so a packet may be longer than it.

    Parameters
    ----------
    width : int
        Data bits per beat.
    meta : shape-like, optional
        Side information of the packets.
    depth, i_domain, o_domain
        Those of :class:`AsyncQueue`; ``depth`` in beats.

    Members
    -------
    i, o : ``PacketSignature(width, meta)``
    """

    def __init__(self, width, *, depth, i_domain, o_domain, meta=None):
        super().__init__(PacketLayout(width, meta), depth=depth, i_domain=i_domain,
                         o_domain=o_domain)


class EventCrossing(wiring.Component):
    """Passes every one-cycle pulse to another clock domain.

    A Gray-coded count crosses, and the far side gives a pulse for each step, one per cycle. Up to
    ``2 ** bits - 1`` events may be in flight; their mean rate must not exceed one per cycle of
    ``o_domain``. Neither side is reset, so a reset of one domain gives no pulses.

    Latency one ``i_domain`` cycle and three to four ``o_domain`` cycles.

    Parameters
    ----------
    i_domain, o_domain : str
        Clock domains of ``i`` and ``o``.
    bits : int
        Bits of the count; 2 or more.

    Members
    -------
    i : 1
        Event, in ``i_domain``.
    o : 1
        One cycle per event, in ``o_domain``.
    """

    i: In(1)
    o: Out(1)

    def __init__(self, *, i_domain, o_domain, bits=4):
        if not isinstance(bits, int) or bits < 2:
            raise ValueError(f"bits must be an integer of at least 2, not {bits!r}")
        super().__init__()
        self._i_domain = i_domain
        self._o_domain = o_domain
        self._bits = bits

    def elaborate(self, platform):
        m = Module()
        # The Gray code has a register of its own, so that it does not glitch.
        count, following, sent, arrived, far, seen = (
            Signal(self._bits, name=name, reset_less=True)
            for name in ("count", "following", "sent", "arrived", "far", "seen"))
        m.d.comb += following.eq(count + self.i)
        m.d[self._i_domain] += [count.eq(following), sent.eq(following ^ (following >> 1))]

        m.submodules.gray = FFSynchronizer(sent, arrived, o_domain=self._o_domain)
        for n in range(self._bits):
            m.d.comb += far[n].eq(arrived[n:].xor())
        m.d.comb += self.o.eq(far != seen)
        m.d[self._o_domain] += seen.eq(seen + self.o)
        return m
