"""Drives a depacketizer, and gives the expectation of the golden model."""

from collections import Counter
from dataclasses import dataclass, field

from dxpu.fabric.wire.format import DropCause
from dxpu.fabric.wire.frame_types import SESSIONLESS, FrameType
from dxpu_model import receiver
from dxpu_model.receiver import HANDLED, SPLIT
from dxpu_model.wire import Ack, Event, Frame, FrameError, Hello, Sack, Tlps
from tests.support.testbench import (
    check_stream, collect_packets, collect_words, drive_packets, simulate,
)

#: Members of a HELLO's body, in wire order.
HELLO = ("nonce", "offered", "echoed", "role", "slots", "arq", "security", "largest", "window",
         "smallest", "give_up", "capabilities", "boot", "table")


def judge(packet, handled=HANDLED):
    """Verdict of the golden model on a received frame: the frame, or a cause."""
    return receiver.judge(packet.data, handled)


@dataclass
class Outcome:
    """Everything that left a depacketizer."""

    tlps: list = field(default_factory=list)
    packets: list = field(default_factory=list)
    events: list = field(default_factory=list)
    committed: list = field(default_factory=list)
    #: Bitmap word of each SACK, if it has one.
    words: list = field(default_factory=list)
    headers: int = 0
    stats: Counter = field(default_factory=Counter)
    cycles: int = 0


def header_values(frame):
    values = {"type": frame.type, "crx": frame.credit is not None, "ar": frame.ar,
              "count": frame.count,
              **{k: getattr(frame, k) for k in ("dst_node", "src_node", "dst_slot", "src_slot",
                                                "path", "stream", "tag", "seq", "ack")}}
    if frame.credit:
        values["credit"] = vars(frame.credit)
    return values


def seen_values(header):
    values = {k: int(getattr(header, k)) for k in (
        "type", "crx", "ar", "count", "dst_node", "src_node", "dst_slot", "src_slot", "path",
        "stream", "tag", "seq", "ack")}
    if header.crx:
        values["credit"] = credit_values(header.credit)
    return values


def credit_values(credit):
    return {k: int(getattr(credit, k))
            for k in ("cls", "generation", "header_limit", "data_limit", "echo")}


def expected(packets, verdicts=None, assembly=None, handled=HANDLED):
    """The :class:`Outcome` of ``packets`` if verdict ``(accept, row)`` n answers header n.

    HDR and DATA go to ``assembly``, a :class:`~dxpu_model.reassembly.Reassembly`, if given.
    """
    out = Outcome()
    handled = (*handled, *SPLIT) if assembly is not None else handled
    for packet in packets:
        frame = judge(packet, handled)
        # The link judges each header, before it is known to be sound.
        accept, row = verdicts(out.headers) if verdicts else (1, 0)
        out.headers += 1
        tlps = []
        if packet.discard:  # taken back
            continue
        if isinstance(frame, Frame) and assembly:
            try:
                tlps = assembly.take(frame, row, accept)
            except FrameError as error:
                frame = error.cause
        elif isinstance(frame, Frame):
            if not accept:
                frame = DropCause.REFUSED
            elif isinstance(frame.body, Tlps):
                tlps = frame.body.tlps
        if isinstance(frame, DropCause):
            out.stats[frame.name.lower()] += 1
            continue
        out.stats["frames"] += 1
        out.committed.append((row, header_values(frame)))
        if isinstance(frame.body, Ack | Sack):
            out.committed[-1] += ([vars(entry) for entry in frame.body.entries],)
        if isinstance(frame.body, Sack):
            out.words.append(frame.body.words)
        if isinstance(frame.body, Hello):
            out.committed[-1] += ([getattr(frame.body, name) for name, _ in Hello.FIELDS],)
        out.tlps += [(tlp, row) for tlp in tlps]
        if isinstance(frame.body, Event):
            out.events.append((row, *vars(frame.body).values()))
    if assembly:
        out.stats["abandoned"] = assembly.abandoned
    return out


def run(dut, packets, *, verdicts=None, rng=None, i=1.0, o=1.0, slow=0, want=None,
        deadline=500_000):
    """Send ``packets`` through ``dut``; returns everything that comes out, until nothing moves."""
    out = Outcome()
    want = want or expected(packets, verdicts)
    counted = sum(not packet.discard for packet in packets)

    async def answer(ctx):
        while True:
            while not ctx.get(dut.header.valid):
                await ctx.tick()
            accept, row = verdicts(out.headers) if verdicts else (1, 0)
            out.headers += 1
            if slow:
                await ctx.tick().repeat(rng.randint(1, slow))
            ctx.set(dut.verdict.payload, {"accept": accept, "row": row})
            ctx.set(dut.verdict.valid, 1)
            ctx.set(dut.header.ready, 1)
            await ctx.tick()
            ctx.set(dut.header.ready, 0)
            ctx.set(dut.verdict.valid, 0)

    async def commits(ctx):
        while True:
            if slow:
                await ctx.tick().repeat(rng.randint(1, slow))
            ctx.set(dut.committed.ready, 1)
            payload, credits, hello, words, word = await ctx.tick().sample(
                dut.committed.payload, dut.credits, dut.hello, dut.words, dut.word).until(
                dut.committed.valid)
            ctx.set(dut.committed.ready, 0)
            out.committed.append((int(payload.row), seen_values(payload.header)))
            if payload.header.type in (FrameType.ACK, FrameType.SACK):
                out.committed[-1] += ([credit_values(entry) for entry in credits],)
            if payload.header.type == FrameType.SACK:
                out.words.append((word,) if words else ())
            if payload.header.type in SESSIONLESS:
                out.committed[-1] += ([int(getattr(hello, name)) for name in HELLO],)

    names = ["frames", *(cause.name.lower() for cause in DropCause)]
    if hasattr(dut, "stat_abandoned"):
        names.append("abandoned")

    async def count(ctx):
        still = 0
        async for _, _, *stats in ctx.tick().sample(*(getattr(dut, f"stat_{n}") for n in names)):
            out.cycles += 1
            for name, value in zip(names, stats, strict=True):
                out.stats[name] += value
            if (out.stats.total() - out.stats["abandoned"] >= counted
                    and len(out.packets) >= len(want.tlps)
                    and len(out.events) >= len(want.events)):
                still += 1
                if still == 30:
                    break

    simulate(
        dut, drive_packets(dut.i, packets, rng=rng, density=i), count,
        background=[
            answer, commits,
            collect_packets(dut.o, 1 << 60, out.packets, rng=rng, density=o),
            collect_words(dut.event, 1 << 60, out.events, rng=rng, density=o),
            check_stream(dut.o, "o"), check_stream(dut.header, "header"),
            check_stream(dut.event, "event"), check_stream(dut.committed, "committed"),
        ], deadline=deadline)
    out.tlps = [(packet.data, packet.meta.row) for packet in out.packets]
    out.events = [(e.row, e.code, e.generation, e.argument) for e in out.events]
    return out


def compare(out, want):
    assert +out.stats == +want.stats
    assert out.headers == want.headers
    assert out.committed == want.committed
    assert [len(words) for words in out.words] == [len(words) for words in want.words]
    assert out.tlps == want.tlps
    assert out.events == want.events


def rows(rng):
    """Random verdicts that mostly accept; stable per header."""
    memory = {}
    return lambda n: memory.setdefault(n, (rng.random() < 0.85, rng.randrange(64)))
