"""Two ends of a session without a line between them: every frame is in the hands of the test.

An end is a keeper and a link. The bench plays packetizer, depacketizer and retransmitter for both.
"""

from dataclasses import dataclass

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.fabric.format import FrameType
from dxpu.fabric.link import Link
from dxpu.fabric.session import Mode, Phase, SessionKeeper, connect_keeper
from dxpu.fabric.types import Hello

HOST, BOX = 0, 1
NODES = (0x001, 0x105)
UP = (Phase.CONFIRM, Phase.OPEN)


class End(wiring.Component):
    """A keeper and a link with one row and one session."""

    def __init__(self, *, keeper=SessionKeeper, link=Link, paths=1, pause=2):
        self.keeper = keeper(sessions=1, paths=paths, pause=pause)
        self.link = link(rows=1, sessions=1, paths=paths, frames=63)
        super().__init__({"hello": In(Hello)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.keeper, m.submodules.link = self.keeper, self.link
        connect_keeper(m, self.keeper, self.link, self.link.committed.payload.header, self.hello)
        return m


class Ends(wiring.Component):
    """A host and a box that can be reset."""

    def __init__(self, **options):
        self.ends = [End(**options), End(**options)]
        super().__init__({"reset": In(2)})

    def elaborate(self, platform):
        m = Module()
        for n, end in enumerate(self.ends):
            m.submodules[f"end{n}"] = ResetInserter(self.reset[n])(end)
        return m


@dataclass(frozen=True)
class Sent:
    """A frame that was sent by ``source``, with fields of its header and, of a HELLO, its body."""

    source: int
    type: int
    tag: int
    seq: int
    ack: int
    ar: int
    hello: tuple = ()

    def __str__(self):
        return f"{FrameType(self.type).name} {self.tag:#x} {self.seq} {self.ack} {self.hello}"


class Player:
    """What a test does to the ends; ``ctx`` is the simulator's."""

    def __init__(self, ctx, dut, *, wait=0, quiet=0, ack_delay=2):
        self.ctx, self.dut = ctx, dut
        self.boots = [0, 0]
        self.unacked = [0, 0]
        self.settings = {"wait": wait, "quiet": quiet}
        for n, end in enumerate(dut.ends):
            ctx.set(end.link.node, NODES[n])
            ctx.set(end.link.bound, 1)
            ctx.set(end.link.ack_delay, ack_delay)
            ctx.set(end.link.rows[0], dict(node=NODES[1 - n], slot=0, local_slot=0, paths=1,
                                           used=1))
            ctx.set(end.keeper.config[0], dict(
                valid=1, node=NODES[1 - n], mode=Mode.OPENS if n == HOST else Mode.ANSWERS))
            for name, value in self.settings.items():
                ctx.set(getattr(end.keeper, name), value)

    def boot(self, n, counter):
        self.boots[n] = counter
        self.ctx.set(self.dut.ends[n].keeper.boot, counter)

    async def reset(self, n, counter):
        self.ctx.set(self.dut.reset, 1 << n)
        self.boot(n, counter)
        self.unacked[n] = 0
        await self.ctx.tick()
        self.ctx.set(self.dut.reset, 0)

    async def give_up(self, n):
        keeper = self.dut.ends[n].keeper
        self.ctx.set(keeper.reopen, 1)
        await self.ctx.tick()
        self.ctx.set(keeper.reopen, 0)

    def phase(self, n):
        return Phase(self.ctx.get(self.dut.ends[n].keeper.phase[0].as_value()))

    def tags(self, n):
        """Tags of the session as (receive, transmit), or None."""
        session = self.ctx.get(self.dut.ends[n].link.sessions[0])
        return (session.rx_tag, session.tx_tag) if session.rx_tag else None

    def numbers(self, n):
        """(sent, acknowledged, taken)."""
        state = self.ctx.get(self.dut.ends[n].link.state[0])
        return state.seq, state.acked, state.next

    async def _route(self, n, **request):
        """The frame that a request leads to; None if there is no way for it."""
        ctx, link = self.ctx, self.dut.ends[n].link
        ctx.set(link.request.payload, request)
        ctx.set(link.request.valid, 1)
        ctx.set(link.route.ready, 1)
        route, = await ctx.tick().sample(link.route.payload).until(link.route.valid)
        ctx.set(link.request.valid, 0)
        ctx.set(link.route.ready, 0)
        return route if route.ok else None

    async def said(self, n, cycles=12):
        """Frames that the end wants to send by itself within some cycles."""
        ctx, end, frames, quiet = self.ctx, self.dut.ends[n], [], 0
        while quiet < cycles:
            if ctx.get(end.keeper.o.valid):
                greeting = ctx.get(end.keeper.o.payload)
                await self._take(end.keeper.o)
                is_ack = greeting.type == FrameType.ACK
                route = await self._route(n, direct=1, hello=not is_ack, probe=is_ack,
                                          tag=greeting.tag, paths=1)
                body = () if is_ack else (greeting.nonce, greeting.offered, greeting.echoed,
                                          self.boots[n])
            elif ctx.get(end.link.reply.valid):
                greeting = ctx.get(end.link.reply.payload)
                await self._take(end.link.reply)
                route, body = await self._route(n, direct=1, paths=1), ()
            else:
                quiet += 1
                await ctx.tick()
                continue
            quiet = 0
            if route is not None:
                frames.append(Sent(n, greeting.type, route.tag, route.seq, route.ack, route.ar,
                                   body))
        return frames

    async def _take(self, source):
        self.ctx.set(source.ready, 1)
        await self.ctx.tick()
        self.ctx.set(source.ready, 0)

    async def send(self, n):
        """A frame with a number, or None."""
        route = await self._route(n, row=0, consumes=1)
        if route is None:
            return None
        self.unacked[n] += 1
        self.ctx.set(self.dut.ends[n].link.unacked[0], self.unacked[n])
        return Sent(n, FrameType.EVENT, route.tag, route.seq, route.ack, route.ar)

    async def deliver(self, frame, good=True):
        """The frame arrives; whether it took effect. A bad one fails after its header."""
        ctx, end, n = self.ctx, self.dut.ends[1 - frame.source], 1 - frame.source
        link = end.link
        header = dict(type=frame.type, dst_node=NODES[n], src_node=NODES[1 - n], tag=frame.tag,
                      seq=frame.seq, ack=frame.ack, ar=frame.ar)
        ctx.set(link.header.payload, header)
        ctx.set(link.header.valid, 1)
        ctx.set(link.verdict.ready, 1)
        verdict, = await ctx.tick().sample(link.verdict.payload).until(link.verdict.valid)
        ctx.set(link.header.valid, 0)
        ctx.set(link.verdict.ready, 0)
        if not verdict.accept or not good:
            return False
        if frame.hello:
            ctx.set(end.hello, dict(zip(("nonce", "offered", "echoed", "boot"), frame.hello,
                                        strict=True)))
        ctx.set(link.committed.payload, dict(header=header))
        ctx.set(link.committed.valid, 1)
        while not ctx.get(link.committed.ready):
            await ctx.tick()
        acked = ctx.get(link.acked[0])
        began = ctx.get(end.keeper.open)
        await ctx.tick()
        ctx.set(link.committed.valid, 0)
        self.unacked[n] = 0 if began else self.unacked[n] - acked
        ctx.set(link.unacked[0], self.unacked[n])
        await ctx.tick()
        return True
