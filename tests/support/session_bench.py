"""Two ends of sessions without a line between them: the test carries every frame.

An end is a keeper, a link and a retransmitter. The bench plays packetizer and depacketizer for both
ends.
"""

from dataclasses import dataclass

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In

from dxpu.fabric.arq.retransmit import Retransmitter
from dxpu.fabric.session.link import Link
from dxpu.fabric.session.session import Mode, Phase, SessionKeeper, connect_keeper
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.fabric.wire.types import Hello
from tests.support.engine_bench import open_anew, set_mode

HOST, BOX = 0, 1
NODES = (0x001, 0x105)
UP = (Phase.CONFIRM, Phase.OPEN)
CELLS = 63


class End(wiring.Component):
    """A keeper, a link with a row for each stream, and a retransmitter without a consumer."""

    def __init__(self, *, keeper=SessionKeeper, link=Link, peers=1, streams=1, paths=1, pause=2,
                 unit=4, pace=4):
        sessions = peers * streams
        self.keeper = keeper(peers=peers, streams=streams, paths=paths, pause=pause, unit=unit,
                             pace=pace)
        self.link = link(rows=streams, peers=peers, streams=streams, paths=paths, frames=CELLS)
        self.retransmitter = Retransmitter(sessions=sessions, paths=paths, cells=CELLS)
        super().__init__({"hello": In(Hello)})

    def elaborate(self, platform):
        m = Module()
        retry = self.retransmitter
        m.submodules.keeper, m.submodules.link = self.keeper, self.link
        m.submodules.retransmitter = retry
        connect_keeper(m, self.keeper, self.link, retry, self.link.committed.payload.header,
                       self.hello)
        m.d.comb += [retry.repeat_take.eq(retry.repeat_valid), retry.free.ready.eq(1)]
        return m


class Ends(wiring.Component):
    """A host and a box with resets. Each end is peer number ``place[n]`` of the other."""

    def __init__(self, *, peers=1, streams=1, place=(0, 0), **options):
        self.peers, self.streams, self.place = peers, streams, place
        self.ends = [End(peers=peers, streams=streams, **options) for _ in range(2)]
        #: Cycles in which each session is called once.
        self.turn = max(options.get("unit", 4), options.get("pace", 4) * peers * streams)
        super().__init__({"reset": In(2)})

    def elaborate(self, platform):
        m = Module()
        for n, end in enumerate(self.ends):
            m.submodules[f"end{n}"] = ResetInserter(self.reset[n])(end)
        return m

    def session(self, n, stream):
        """Number of the common session of a stream, at end ``n``."""
        return self.place[n] * self.streams + stream


@dataclass(frozen=True)
class Sent:
    """A frame sent by ``source``: fields of its header, and of the body of a HELLO."""

    source: int
    type: int
    tag: int
    seq: int
    ack: int
    ar: int
    hello: tuple = ()
    stream: int = 0

    def __str__(self):
        return f"{FrameType(self.type).name} {self.tag:#x} {self.seq} {self.ack} {self.hello}"


@dataclass(frozen=True)
class View:
    """State of a session at one end.

    ``tags``: tags to receive and to transmit, or None. ``numbers``: frames sent, acknowledged and
    taken. ``candidate``: the tag offered. ``greets``: whether HELLOs are accepted.
    """

    phase: Phase
    boot: int
    tags: tuple | None
    numbers: tuple
    candidate: int
    greets: bool
    unacked: int
    failed: bool

    @property
    def down(self):
        """Whether the session is not open."""
        return self.phase != Phase.OPEN


class Player:
    """Actions of a test on the ends; ``ctx`` is the simulator's. Begins with :meth:`set_up`."""

    def __init__(self, ctx, dut):
        self.ctx, self.dut = ctx, dut
        self.boots = [0, 0]
        self._cells = [0, 0]
        self._streams = range(dut.streams)
        #: Cycles of silence after which an end has nothing to send: a session is called five times
        #: from reset to the first HELLO.
        self.cycles = 5 * dut.turn + 4

    async def set_up(self, *, wait=0, quiet=0, ack_delay=2, streams=None):
        """Write all settings of software; sessions of ``streams`` open by HELLO."""
        if streams is not None:
            self._streams = streams
        ctx = self.ctx
        for n, end in enumerate(self.dut.ends):
            link, place = end.link, self.dut.place[n]
            ctx.set(link.node, NODES[n])
            ctx.set(link.bound, ~0)
            ctx.set(link.ack_delay, ack_delay)
            for stream in range(self.dut.streams):
                ctx.set(link.rows[stream], dict(node=NODES[1 - n], stream=stream, paths=1, used=1))
            for peer in range(self.dut.peers):
                ctx.set(link.peers[peer], dict(
                    valid=1, node=NODES[1 - n] if peer == place else 0x800 + peer))
            ctx.set(end.keeper.wait, wait)
            ctx.set(end.keeper.quiet, quiet)
            ctx.set(end.retransmitter.wait, 0)
            await self._set_modes(n)
        return self

    async def _set_modes(self, n):
        for stream in self._streams:
            await set_mode(self.ctx, self.dut.ends[n].keeper,
                           Mode.OPENS if n == HOST else Mode.ANSWERS,
                           session=self.dut.session(n, stream))
        await self.calm(n)

    async def calm(self, n):
        """Wait until no message or action is under way."""
        end = self.dut.ends[n]
        waits = [end.link.said.valid, end.link.acked.valid, end.keeper.opening]
        await self.ctx.tick().repeat(2)
        while any(map(self.ctx.get, waits)):
            await self.ctx.tick()

    def boot(self, n, counter):
        self.boots[n] = counter
        self.ctx.set(self.dut.ends[n].keeper.boot, counter)

    async def reset(self, n, counter):
        self.ctx.set(self.dut.reset, 1 << n)
        self.boot(n, counter)
        await self.ctx.tick()
        self.ctx.set(self.dut.reset, 0)
        await self._set_modes(n)

    async def give_up(self, n, stream=0):
        await open_anew(self.ctx, self.dut.ends[n].keeper, session=self.dut.session(n, stream))
        await self.calm(n)

    async def look(self, n, session):
        """State of the session with this number, as a :class:`View`."""
        view, = await self._look(n, [session])
        return view

    async def look_at_all(self, n):
        return await self._look(n, range(self.dut.peers * self.dut.streams))

    async def _look(self, n, sessions):
        ctx, end = self.ctx, self.dut.ends[n]
        answers = []
        for part, what in ((end.keeper, [end.keeper.shown]),
                           (end.link, [end.link.state, end.link.shown_unacked, end.link.shown,
                                       end.keeper.candidate, end.keeper.greets])):
            ctx.set(part.look, 1)
            answers.append([])
            for session in sessions:
                ctx.set(part.looked, session)
                answers[-1].append(await ctx.tick().sample(*what).until(part.seen))
            ctx.set(part.look, 0)
        return [View(Phase(shown.phase), shown.boot,
                     (shown.rx_tag, shown.tx_tag) if shown.rx_tag or shown.tx_tag else None,
                     (state.seq, state.acked, state.next), candidate, bool(greets), unacked,
                     bool(about.failed))
                for (shown,), (state, unacked, about, candidate, greets) in zip(
                    *answers, strict=True)]

    async def view(self, n, stream=0):
        return await self.look(n, self.dut.session(n, stream))

    async def phase(self, n, stream=0):
        return (await self.view(n, stream)).phase

    async def phases(self, stream=0):
        return [await self.phase(n, stream) for n in (HOST, BOX)]

    async def tags(self, n, stream=0):
        """Tags of the session as (receive, transmit), or None."""
        return (await self.view(n, stream)).tags

    async def numbers(self, n, stream=0):
        """(sent, acknowledged, taken)."""
        return (await self.view(n, stream)).numbers

    async def _route(self, n, **request):
        """The frame granted to a request; None if there is no route."""
        ctx, link = self.ctx, self.dut.ends[n].link
        ctx.set(link.request.payload, request)
        ctx.set(link.request.valid, 1)
        ctx.set(link.route.ready, 1)
        route, = await ctx.tick().sample(link.route.payload).until(link.route.valid)
        ctx.set(link.request.valid, 0)
        ctx.set(link.route.ready, 0)
        return route if route.ok else None

    async def said(self, n, cycles=0):
        """Frames that the end sends by itself, until it is silent for some cycles."""
        ctx, end, frames, quiet = self.ctx, self.dut.ends[n], [], 0
        while quiet < (cycles or self.cycles):
            if ctx.get(end.keeper.o.valid):
                greeting = ctx.get(end.keeper.o.payload)
                await self._take(end.keeper.o)
                is_ack = greeting.type == FrameType.ACK
                route = await self._route(n, direct=1, session=greeting.session, hello=not is_ack,
                                          probe=is_ack, tag=greeting.tag, paths=1,
                                          seq=greeting.seq, ack=greeting.ack)
                is_hello = greeting.type in (FrameType.HELLO, FrameType.HELLO_ACK)
                body = (greeting.nonce, greeting.offered, greeting.echoed,
                        self.boots[n]) if is_hello else ()
            elif ctx.get(end.link.reply.valid):
                greeting = ctx.get(end.link.reply.payload)
                await self._take(end.link.reply)
                route, body = await self._route(
                    n, direct=1, session=greeting.session, paths=1), ()
            else:
                quiet += 1
                await ctx.tick()
                continue
            quiet = 0
            if route is not None:
                assert route.session == greeting.session and route.dst_node == NODES[1 - n]
                frames.append(Sent(n, greeting.type, route.tag, route.seq, route.ack, route.ar,
                                   body, route.stream))
        return frames

    async def _take(self, source):
        self.ctx.set(source.ready, 1)
        await self.ctx.tick()
        self.ctx.set(source.ready, 0)

    async def send(self, n, stream=0):
        """Send a numbered frame; returns the frame, or None."""
        route = await self._route(n, row=stream, consumes=1)
        if route is None:
            return None
        retry = self.dut.ends[n].retransmitter
        self._cells[n] = (self._cells[n] + 1) % CELLS
        self.ctx.set(retry.stored, dict(session=route.session, epoch=route.epoch,
                                        cell=self._cells[n]))
        self.ctx.set(retry.stored_strobe, 1)
        await self.ctx.tick()
        self.ctx.set(retry.stored_strobe, 0)
        await self.ctx.tick().repeat(3)
        return Sent(n, FrameType.EVENT, route.tag, route.seq, route.ack, route.ar, (), stream)

    async def deliver(self, frame, good=True):
        """Deliver the frame; returns whether it took effect. A bad frame fails behind its
        header."""
        ctx, end, n = self.ctx, self.dut.ends[1 - frame.source], 1 - frame.source
        link = end.link
        header = dict(type=frame.type, dst_node=NODES[n], src_node=NODES[1 - n], tag=frame.tag,
                      seq=frame.seq, ack=frame.ack, ar=frame.ar, stream=frame.stream)
        ctx.set(link.header.payload, header)
        ctx.set(link.header.valid, 1)
        ctx.set(link.verdict.ready, 1)
        ctx.set(link.frame_done, 1)
        verdict, = await ctx.tick().sample(link.verdict.payload).until(link.verdict.valid)
        ctx.set(link.header.valid, 0)
        ctx.set(link.verdict.ready, 0)
        if not verdict.accept or not good:
            return False
        if frame.hello:
            for name, value in zip(("nonce", "offered", "echoed", "boot"), frame.hello,
                                   strict=True):
                ctx.set(end.hello[name], value)
        ctx.set(link.committed.payload, dict(header=header, row=frame.stream))
        ctx.set(link.committed.valid, 1)
        await ctx.tick().until(link.committed.ready)
        ctx.set(link.committed.valid, 0)
        await self.calm(n)
        return True
