"""A link whose look-ups of session state are answered by the test."""

from amaranth import *
from amaranth.lib import wiring

from dxpu.fabric.arq.retransmit import About
from dxpu.fabric.session.link import Link

__all__ = ["Bench", "open_session", "state_of"]


class Bench(wiring.Component):
    """``link`` with look-up answers set by the test.

    For each session: ``tx_tag``, ``down``, ``about``, ``rx_tag``, ``candidate``, ``greets``,
    ``unacked``, ``given_up``.
    """

    def __init__(self, design=Link, *, paths=2, frames=64, **options):
        super().__init__({})
        self.link = design(paths=paths, frames=frames, **options)
        self._fields = {"sending": {}, "receiving": {}}
        sessions = range(options["peers"] * options["streams"])
        for field, shape, who in (
                ("tx_tag", 16, "sending"), ("down", 1, "sending"),
                ("about", About(paths), "sending"),
                ("rx_tag", 16, "receiving"), ("candidate", 16, "receiving"),
                ("greets", 1, "receiving"), ("unacked", range(frames + 1), "receiving"),
                ("given_up", 1, "receiving")):
            signals = [Signal(shape, name=f"{field}{n}") for n in sessions]
            self._fields[who][field] = signals
            setattr(self, field, signals)

    def elaborate(self, platform):
        m = Module()
        m.submodules.link = link = self.link
        for who, fields in self._fields.items():
            for field, signals in fields.items():
                m.d.comb += Value.cast(getattr(link, field)).eq(
                    Array(Value.cast(s) for s in signals)[getattr(link, who)])
        return m


async def open_session(ctx, dut, session):
    """Open a session as a keeper does: no look-ups meanwhile."""
    link = dut.link
    ctx.set(link.hold, 1)
    ctx.set(link.open.payload, session)
    ctx.set(link.open.valid, 1)
    await ctx.tick().until(link.open.ready)
    ctx.set(link.open.valid, 0)
    ctx.set(link.hold, 0)


async def state_of(ctx, dut, session):
    """The numbers of a session."""
    link = dut.link
    ctx.set(link.looked, session)
    ctx.set(link.look, 1)
    state, = await ctx.tick().sample(link.state).until(link.seen)
    ctx.set(link.look, 0)
    await ctx.tick()
    return state
