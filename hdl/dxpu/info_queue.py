"""Queue of packets whose information is stored once per packet, and leaves ahead of their beats."""

from amaranth import *
from amaranth.lib import fifo, stream, wiring
from amaranth.lib.wiring import In, Out

from .queue import PacketQueue
from .stream import PacketSignature, check_width, connect

__all__ = ["InfoQueue"]


class InfoQueue(wiring.Component):
    """Store-and-forward queue of packets: the beats in block RAM, the information of each packet in
    a small distributed RAM.

    Both leave in order, each at its own pace: the information can be looked up while the beats
    wait. Only packets that are stored whole have information. A packet that ends with ``discard``
    is removed, as is one that is larger than the queue; neither leaves anything. While information
    of ``packets`` packets waits, the last beat of the next one does, whatever becomes of it.

    Latency from the last beat: one cycle to ``info``, one cycle to the first beat, or two if they
    are the same. Throughput one beat per cycle, for packets of one beat, too.

    Parameters
    ----------
    width : int
        Data bits per beat.
    depth : int
        Beats; a power of two.
    info : shape-like
        Information about a packet.
    packets : int
        Packets whose information can wait.

    Members
    -------
    i : packet stream
    i_info : ``info``
        Information about the packet on ``i``; sampled with its last beat.
    info : stream of ``info``
    beats : packet stream
        Never has ``discard``.
    level : ``range(depth + 1)``
        Beats in memory, including those of an incomplete packet.
    infos : ``range(packets + 1)``
        Packets whose information waits.
    stat_discarded, stat_overflow : 1
        Those of :class:`~dxpu.queue.PacketQueue`.
    """

    def __init__(self, width, *, depth, info, packets=16):
        if not isinstance(packets, int) or packets < 1:
            raise ValueError(f"packets must be a positive integer, not {packets!r}")
        self._beats = PacketQueue(check_width(width), depth=depth)
        self._infos = fifo.SyncFIFO(width=Shape.cast(info).width, depth=packets)
        super().__init__({
            "i": In(PacketSignature(width)),
            "i_info": In(info),
            "info": Out(stream.Signature(info)),
            "beats": Out(PacketSignature(width)),
            "level": Out(range(depth + 1)),
            "infos": Out(range(packets + 1)),
            "stat_discarded": Out(1),
            "stat_overflow": Out(1),
        })

    def elaborate(self, platform):
        m = Module()
        i = self.i
        m.submodules.beats = beats = self._beats
        m.submodules.infos = infos = self._infos
        connect(m, beats.o, wiring.flipped(self.beats))
        # `ready` must not depend on `discard`, which is late where it follows from checks.
        able = ~i.p.last | infos.w_rdy
        m.d.comb += [
            beats.i.payload.eq(i.payload),
            beats.i.valid.eq(i.valid & able),
            i.ready.eq(beats.i.ready & able),
            infos.w_data.eq(self.i_info),
            # A packet that is too large is no more in memory when its end comes.
            infos.w_en.eq(i.valid & beats.i.ready & i.p.last & ~i.p.discard
                          & ~beats.stat_overflow),
            Value.cast(self.info.payload).eq(infos.r_data),
            self.info.valid.eq(infos.r_rdy),
            infos.r_en.eq(self.info.ready),
            self.level.eq(beats.level),
            self.infos.eq(infos.level),
            self.stat_discarded.eq(beats.stat_discarded),
            self.stat_overflow.eq(beats.stat_overflow),
        ]
        return m
