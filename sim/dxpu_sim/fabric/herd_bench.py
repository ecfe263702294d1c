"""All sessions of an engine are opened at once, under keys; its peers are golden models.

``$DXPU_HERD`` holds the case as JSON: ``opens``, the engine opens the sessions, and does not
answer; ``loss``, the share of frames that get lost in either direction. What came out goes to
``result.json`` in the run's folder.
"""

import heapq
import json
import os
import random
from itertools import count
from pathlib import Path

import cocotb
from cocotb.triggers import Timer

from dxpu.fabric.wire.format import Role, SecurityMode
from dxpu.fabric.wire.frame_types import FrameType
from dxpu_model.keyed import PARAMETER_BYTES, Ends
from dxpu_model.opening import Answerer, Keys, Opener, OpeningFrame
from dxpu_model.wire import Ack, Credit, Frame, Hello, build, parse
from dxpu_sim.ethernet.frames import FramePort

from .herd_design import NODE, PEERS, STREAMS, HerdBench, key_of, peer_node

CASE = json.loads(os.environ.get("DXPU_HERD", "{}"))
#: Cycles of the engine's clock in a microsecond; longest time of a run, in microseconds.
CLOCK, PATIENCE = 125, 140_000
_NONE = Ack(tuple(Credit(cls, 0, 0, 0, 0) for cls in range(3)))
_OPENINGS = (FrameType.HELLO, FrameType.HELLO_ACK, FrameType.HELLO_DONE)


class Peer:
    """One session's other end: the golden model, and the acknowledgements of an open session."""

    def __init__(self, herd, n, stream):
        self.herd, self.node, self.stream = herd, peer_node(n), stream
        self.heard = False  # a frame of the session
        role = Role.BOX if CASE["opens"] else Role.HOST
        hello = Hello(0, 0, 0, role, 1, 0, SecurityMode.KEYED, 4180, 64, 250, 7500, 0, 1, 0,
                      answer=CASE["opens"])
        fields, keys = hello.pack(0, 0)[:PARAMETER_BYTES], Keys(key_of(n))
        if CASE["opens"]:
            self.ends = Ends(NODE, self.node, stream)
            self.end = Answerer(self.ends, keys, fields, draw=herd.rng.randbytes,
                                draw_tag=herd.draw_tag)
        else:
            self.ends = Ends(self.node, NODE, stream)
            self.end = Opener(self.ends, keys, fields, paths=1, draw=herd.rng.randbytes,
                              draw_tag=herd.draw_tag, now=0)

    def tick(self, now):
        """Send what is to be sent by now; returns when more is."""
        self.send(self.end.tick(now))
        return self.end.deadline()

    def send(self, frames):
        """Openings go out."""
        for frame in frames:
            self.herd.send(Frame(_body(frame), dst_node=NODE, src_node=self.node,
                                 stream=self.stream, tag=frame.tag))

    def take(self, frame, now):
        """A frame of the engine came."""
        if frame.type in _OPENINGS:
            opening = OpeningFrame.parse(frame.type, self.ends, frame.tag, frame.body.pack(0, 0))
            answers = self.end.take(opening, now)
            if CASE["opens"]:
                answers, acknowledges = answers
                if acknowledges:
                    self.acknowledge()
            self.send(answers)
            return
        session = self.end.session
        mine, own, its = (
            (session.to_answerer, session.answerer_seq, session.opener_seq) if CASE["opens"]
            else (session.to_opener, session.opener_seq, session.answerer_seq)
        ) if session else (0, 0, 0)
        if mine == 0 or (frame.tag, frame.seq, frame.ack) != (mine, its, own):
            self.herd.strays.append((self.node, self.stream, frame.type.name))
            return
        if not self.heard:
            self.heard = True
            if not CASE["opens"]:
                self.end.heard()
        if frame.ar:
            self.acknowledge()

    def acknowledge(self):
        """An ACK of the session goes out."""
        session = self.end.session
        tag, own, its = (
            (session.to_opener, session.answerer_seq, session.opener_seq) if CASE["opens"]
            else (session.to_answerer, session.opener_seq, session.answerer_seq))
        self.herd.send(Frame(_NONE, dst_node=NODE, src_node=self.node, stream=self.stream, tag=tag,
                             seq=own, ack=its))


def _body(frame):
    """The body of a golden model's frame, to be built."""
    starts, at = [], 0
    for _, size in Hello.FIELDS:
        starts.append(at)
        at += size
    values = {name: int.from_bytes(frame.fields[at:at + size], "big")
              for (name, size), at in zip(Hello.FIELDS, starts, strict=True)}
    return Hello(**values, answer=frame.kind == FrameType.HELLO_ACK,
                 done=frame.kind == FrameType.HELLO_DONE,
                 keyed=frame.opener_nonce + frame.answerer_nonce + frame.proof)


class Herd:
    """All peers, and the line to them."""

    def __init__(self, dut):
        self.dut, self.rng = dut, random.Random(int(os.environ["DXPU_SEED"]))
        self._tags = count(1)
        self.begin, self.lost, self.sent, self.strays = 0, 0, [], []
        self.port = FramePort(dut, dut.source.rows, dut.sink.rows)
        self.peers = {(peer_node(n), stream): Peer(self, n, stream)
                      for n in range(PEERS) for stream in range(STREAMS)}

    @property
    def cycle(self):
        """Cycles since the sessions may be opened."""
        return int(self.dut.cycle.value) - self.begin

    def draw_tag(self):
        """A tag of a peer; one that is used once only does for all."""
        return next(self._tags)

    def _survives(self):
        lost = self.rng.random() < CASE["loss"]
        self.lost += lost
        return not lost

    def send(self, frame):
        """A frame to the engine, behind those that wait."""
        self.sent.append(frame)

    async def transmits(self):
        """Frames go to the engine, one behind the other."""
        while True:
            while self.sent:
                frame = build(self.sent.pop(0))
                if self._survives():
                    await self.port.send(frame)
            await Timer(1, "us")

    async def receives(self):
        """Frames come from the engine."""
        while True:
            data, bad = await self.port.received.get()
            assert not bad
            if self._survives():
                frame = parse(data)
                self.peers[frame.dst_node, frame.stream].take(frame, self.cycle / CLOCK)

    async def knocks(self):
        """The peers open: all at once, and again when their waits are over."""
        times = [(0, key) for key in self.peers]
        while times:
            now, key = heapq.heappop(times)
            while self.cycle < now * CLOCK:
                await Timer(1, "us")
            deadline = self.peers[key].tick(self.cycle / CLOCK)
            # A deadline may move while the time is waited for, but never to an earlier one than the
            # next wait.
            if deadline is not None:
                heapq.heappush(times, (max(deadline, now + 1), key))


@cocotb.test()
async def herd(dut):
    """All sessions open."""
    dut.opens.value, dut.boot.value, dut.tx_send.value = int(CASE["opens"]), 0, 0
    await Timer(1, "us")
    herd = Herd(dut)
    while not int(dut.ready.value):
        await Timer(1, "us")
    herd.begin = int(dut.cycle.value)
    dut.boot.value = 1
    for task in (herd.transmits(), herd.receives(), *(() if CASE["opens"] else (herd.knocks(),))):
        cocotb.start_soon(task)
    while int(dut.count_session_opened.value) < len(herd.peers):
        await Timer(1, "us")
        assert herd.cycle < PATIENCE * CLOCK, "not all are open"
    cycles = herd.cycle
    # What was opened stays, and is polled.
    await Timer(5, "ms")
    names = [name for name, _ in HerdBench().signature.members.items()
             if name.startswith("count_")]
    Path("result.json").write_text(json.dumps({
        "cycles": cycles, "heard": sum(peer.heard for peer in herd.peers.values()),
        "lost": herd.lost, "strays": herd.strays,
        "proofs": sum(peer.end.counters["proof"] for peer in herd.peers.values()),
        **{name.removeprefix("count_"): int(getattr(dut, name).value) for name in names}}))
    herd.port.check()
