"""Arbiter of packet streams."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .priority import round_robin
from .stream import PacketLayout, PacketSignature, Register

__all__ = ["PacketArbiter"]


class PacketArbiter(wiring.Component):
    """Merges packet streams by whole packets, in turn (round robin).

    A packet waits for at most one packet of each other stream. Latency one cycle,
    throughput one beat per cycle, also between packets of different streams.

    Parameters
    ----------
    width : int
        Data bits per beat.
    count : int
        Input streams.
    meta : shape-like, optional
        Side information of the packets.

    Members
    -------
    i : array of ``count`` packet streams
        Packets to merge.
    o : packet stream
        Merged packets.
    source : ``range(count)``
        Index of the input of the beat on ``o``.
    """

    def __init__(self, width, *, count, meta=None):
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"count must be a positive integer, not {count!r}")
        super().__init__({
            "i": In(PacketSignature(width, meta)).array(count),
            "o": Out(PacketSignature(width, meta)),
            "source": Out(range(count)),
        })
        self._layout = PacketLayout(width, meta)
        self._count = count

    def elaborate(self, platform):
        m = Module()
        m.submodules.stage = stage = Register(
            data.StructLayout({"beat": self._layout, "source": range(self._count)}))
        valid = Signal(self._count)
        m.d.comb += valid.eq(Cat(s.valid for s in self.i))

        locked = Signal()
        current, chosen, pick = (Signal(range(self._count)) for _ in range(3))
        m.d.comb += [
            pick.eq(round_robin(valid, current)),
            chosen.eq(Mux(locked, current, pick)),
            stage.i.payload.source.eq(chosen),
        ]
        with m.Switch(chosen):
            for n, s in enumerate(self.i):
                with m.Case(n):
                    m.d.comb += [
                        stage.i.payload.beat.eq(s.payload),
                        stage.i.valid.eq(s.valid),
                        s.ready.eq(stage.i.ready),
                    ]
        with m.If(stage.i.valid & stage.i.ready):
            m.d.sync += [locked.eq(~stage.i.payload.beat.last), current.eq(chosen)]

        m.d.comb += [
            self.o.payload.eq(stage.o.payload.beat),
            self.source.eq(stage.o.payload.source),
            self.o.valid.eq(stage.o.valid),
            stage.o.ready.eq(self.o.ready),
        ]
        return m
