"""Arbiter of packet streams."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from .priority import round_robin
from .stream import PacketLayout, PacketSignature, Register

__all__ = ["PacketArbiter"]


class PacketArbiter(wiring.Component):
    """Merges packet streams by whole packets, in turn (round robin).

    A packet waits for at most one packet of each other stream. Latency one cycle, or two if nothing
    else was there and it is not the turn of its input; throughput one beat per cycle, also between
    packets of different streams. Whose turn it is is known from the cycle before, so that ``ready``
    depends on no ``valid``.

    Parameters
    ----------
    width : int
        Data bits per beat.
    count : int
        Input streams.
    home : int, optional
        Input whose turn it is when nothing is there; without, the one that was served last.
    meta : shape-like, optional
        Side information of the packets.
    register : component
        Register stage at the output: a :class:`~dxpu.stream.Register`, or, with less logic where
        ``o.ready`` comes early in a cycle, a :class:`~dxpu.stream.ForwardRegister`.

    Members
    -------
    i : array of ``count`` packet streams
        Packets to merge.
    o : packet stream
        Merged packets.
    source : ``range(count)``
        Index of the input of the beat on ``o``.
    """

    def __init__(self, width, *, count, home=None, meta=None, register=Register):
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"count must be a positive integer, not {count!r}")
        if home is not None and home not in range(count):
            raise ValueError(f"home must be an input, 0 to {count - 1}, not {home!r}")
        super().__init__({
            "i": In(PacketSignature(width, meta)).array(count),
            "o": Out(PacketSignature(width, meta)),
            "source": Out(range(count)),
        })
        self._layout = PacketLayout(width, meta)
        self._count, self._home, self._register = count, home, register

    def elaborate(self, platform):
        m = Module()
        m.submodules.stage = stage = self._register(
            data.StructLayout({"beat": self._layout, "source": range(self._count)}))
        valid = Signal(self._count)
        m.d.comb += valid.eq(Cat(s.valid for s in self.i))

        within, turn = Signal(), Signal(range(self._count), init=self._home or 0)
        m.d.comb += stage.i.payload.source.eq(turn)
        with m.Switch(turn):
            for n, s in enumerate(self.i):
                with m.Case(n):
                    m.d.comb += [
                        stage.i.payload.beat.eq(s.payload),
                        stage.i.valid.eq(s.valid),
                        s.ready.eq(stage.i.ready),
                    ]
        taken, last = stage.i.valid & stage.i.ready, stage.i.payload.beat.last
        with m.If(taken):
            m.d.sync += within.eq(~last)
        with m.If(Mux(stage.i.valid, stage.i.ready & last, ~within)):
            idle = turn if self._home is None else self._home
            m.d.sync += turn.eq(Mux(valid.any(), round_robin(valid, turn), idle))

        m.d.comb += [
            self.o.payload.eq(stage.o.payload.beat),
            self.source.eq(stage.o.payload.source),
            self.o.valid.eq(stage.o.valid),
            stage.o.ready.eq(self.o.ready),
        ]
        return m
