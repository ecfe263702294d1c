"""Packets as AXI4-Stream transfers, both ways.

Byte n of a transfer is in bits 8n+7:8n, as in :class:`~dxpu.stream.PacketLayout`, so the data pass
unchanged. Packets here are *continuous aligned streams* (IHI 0051, 1.2.2): every byte of a transfer
is valid, but for bytes at the end of the last one.
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import PacketSignature, check_width

__all__ = ["AxiReceiver", "AxiStream", "AxiTransmitter"]


class AxiStream(wiring.Signature):
    """AXI4-Stream, seen from the transmitter.

    Parameters
    ----------
    width : int
        Data bits per transfer.
    user : bool
        There is ``tuser``.
    ready : bool
        There is ``tready``. Without it the receiver takes every transfer.

    Members
    -------
    tdata : Out(width)
        Byte 0 least significant.
    tkeep : Out(width // 8)
        Bit n: byte n of the transfer is a part of the packet.
    tlast : Out(1)
        The transfer is the last of its packet.
    tuser : Out(1)
        With ``tlast``: the packet is bad and must have no effect.
    tvalid : Out(1)
    tready : In(1)
    """

    def __init__(self, width, *, user=False, ready=True):
        super().__init__({
            "tdata": Out(check_width(width)),
            "tkeep": Out(width // 8),
            "tlast": Out(1),
            **({"tuser": Out(1)} if user else {}),
            "tvalid": Out(1),
            **({"tready": In(1)} if ready else {}),
        })
        self._shape = width, user, ready

    def __eq__(self, other):
        return type(self) is type(other) and self._shape == other._shape


class AxiTransmitter(wiring.Component):
    """Turns a packet stream into an AXI4-Stream.

    Combinational. ``tvalid`` does not wait for ``tready``, and a transfer that is offered stays as
    it is until it is taken, because the packet stream has the same rules.

    Parameters
    ----------
    width : int
        Data bits per beat.
    user : bool
        ``tuser`` shows ``discard``. Without it the source must not discard packets.

    Members
    -------
    i : In packet stream
    axis : Out(AxiStream)
        One transfer for each beat.
    """

    def __init__(self, width, *, user=False):
        super().__init__({
            "i": In(PacketSignature(width)), "axis": Out(AxiStream(width, user=user)),
        })
        self._lanes, self._user = width // 32, user

    def elaborate(self, platform):
        m = Module()
        beat, axis = self.i.payload, self.axis
        m.d.comb += [
            axis.tdata.eq(beat.data),
            axis.tkeep.eq(Cat((beat.dwords > lane).replicate(4) for lane in range(self._lanes))),
            axis.tlast.eq(beat.last),
            axis.tvalid.eq(self.i.valid),
            self.i.ready.eq(axis.tready),
        ]
        if self._user:
            m.d.comb += axis.tuser.eq(beat.last & beat.discard)
        return m


class AxiReceiver(wiring.Component):
    """Turns an AXI4-Stream into a packet stream.

    The last beat of a packet has ``discard`` if ``tuser`` is 1 with ``tlast``, if the packet is
    ``broken``, or if it is ``not_dwords``. Idle cycles may be anywhere. Combinational; one bit of
    state for the begin of a packet, and one for a broken one.

    Parameters
    ----------
    width : int
        Data bits per beat.
    user, ready : bool
        There are ``tuser``, ``tready``. Without ``tready`` every transfer counts as taken, so
        ``o.ready`` must be 1 whenever ``o.valid`` is.

    Members
    -------
    axis : In(AxiStream)
    o : Out packet stream
        One beat for each transfer.
    broken : Out(1)
        With the last beat: a byte was missing before the end of the packet, or the last transfer
        had no byte. A packet stream has no place for such a gap.
    not_dwords : Out(1)
        With the last beat: the packet is not ``broken``, and its length is no multiple of 4 bytes.
    """

    def __init__(self, width, *, user=False, ready=True):
        super().__init__({
            "axis": In(AxiStream(width, user=user, ready=ready)),
            "o": Out(PacketSignature(width)),
            "broken": Out(1),
            "not_dwords": Out(1),
        })
        self._lanes, self._user, self._ready = width // 32, user, ready

    def elaborate(self, platform):
        m = Module()
        axis, o, keep, lanes = self.axis, self.o, self.axis.tkeep, self._lanes
        first, gap = Signal(init=1), Signal()
        # Where the bytes end: in lane n, if the lane has a byte and the next one has none.
        ends = [keep[4 * n] & ~keep[4 * n + 4] for n in range(lanes - 1)] + [keep[4 * lanes - 4]]
        dwords, straight, whole, partial = Signal(o.payload.dwords.shape()), Signal(), Signal(), \
            Signal()
        m.d.comb += [
            dwords.eq(Mux(ends[0] | ~keep[0], 1, 0)),
            whole.eq(keep.all()),
            # A byte is there only if the one before it is.
            straight.eq((keep[:-1] | ~keep[1:]).all() & keep[0]),
            partial.eq(Cat(keep[4 * n] & ~keep[4 * n + 3] for n in range(lanes)).any()),
        ]
        for n in range(1, lanes):
            with m.If(ends[n]):
                m.d.comb += dwords.eq(n + 1)
        bad = axis.tuser if self._user else 0
        m.d.comb += [
            o.payload.data.eq(axis.tdata),
            o.payload.dwords.eq(Mux(axis.tlast, dwords, lanes)),
            o.payload.first.eq(first),
            o.payload.last.eq(axis.tlast),
            o.payload.discard.eq(axis.tlast & (bad | self.broken | self.not_dwords)),
            o.valid.eq(axis.tvalid),
            self.broken.eq(axis.tlast & (gap | ~straight)),
            self.not_dwords.eq(axis.tlast & ~self.broken & partial),
        ]
        moved = axis.tvalid
        if self._ready:
            m.d.comb += axis.tready.eq(o.ready)
            moved = axis.tvalid & axis.tready
        with m.If(moved):
            m.d.sync += [first.eq(axis.tlast), gap.eq(~axis.tlast & (gap | ~whole))]
        return m
