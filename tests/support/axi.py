"""AXI4-Stream and AXI4-Lite for Amaranth's simulator, and checkers of their rules.

Ref: ARM IHI 0051, 2.2; ARM IHI 0022, A3.2
"""

from dataclasses import dataclass

from tests.support.testbench import StreamViolation, _gap

__all__ = ["Frame", "check_axi_lite", "check_axi_stream", "collect_frames", "drive_frames",
           "transfers"]


@dataclass
class Frame:
    """A packet on an AXI4-Stream, of any number of bytes."""

    data: bytes
    bad: bool = False


def transfers(axis, frame):
    """The transfers of a frame: payload signals by name."""
    step = len(axis.tkeep)
    chunks = [frame.data[n:n + step] for n in range(0, len(frame.data), step)]
    for n, chunk in enumerate(chunks):
        last = n == len(chunks) - 1
        yield {"tdata": int.from_bytes(chunk, "little"), "tkeep": (1 << len(chunk)) - 1,
               "tlast": last, "tuser": frame.bad and last}


def drive_frames(axis, frames, *, rng=None, density=1.0, domain="sync", cut=transfers):
    """Process that sends frames, with random gaps within and between."""
    async def process(ctx):
        for frame in frames:
            for beat in cut(axis, frame):
                if n := _gap(rng, density):
                    await ctx.tick(domain).repeat(n)
                for name, value in beat.items():
                    if hasattr(axis, name):
                        ctx.set(getattr(axis, name), value)
                ctx.set(axis.tvalid, 1)
                if hasattr(axis, "tready"):
                    await ctx.tick(domain).until(axis.tready)
                else:
                    await ctx.tick(domain)
                ctx.set(axis.tvalid, 0)
    return process


def collect_frames(axis, count, into, *, rng=None, density=1.0, domain="sync", gapless=False):
    """Process that appends ``count`` frames to ``into``.

    ``gapless``: ``tvalid`` must not fall inside a frame.
    """
    step = len(axis.tkeep)

    async def process(ctx):
        data = b""
        while len(into) < count:
            ready = rng is None or rng.random() < density
            ctx.set(axis.tready, ready)
            _, _, valid, payload, keep, last, user = await ctx.tick(domain).sample(
                axis.tvalid, axis.tdata, axis.tkeep, axis.tlast,
                axis.tuser if hasattr(axis, "tuser") else axis.tlast)
            if gapless and data and not valid:
                raise StreamViolation("tvalid fell inside a frame")
            if not (valid and ready):
                continue
            bytes_here = keep.bit_length()
            if keep != (1 << bytes_here) - 1 or not keep or (not last and bytes_here != step):
                raise StreamViolation(f"tkeep={keep:#x} with tlast={last}")
            data += payload.to_bytes(step, "little")[:bytes_here]
            if last:
                into.append(Frame(data, bool(user) and hasattr(axis, "tuser")))
                data = b""
        ctx.set(axis.tready, 0)
    return process


def check_axi_stream(axis, *, domain="sync"):
    """Background process: what is offered stays as it is until it is taken."""
    names = [n for n in ("tdata", "tkeep", "tlast", "tuser") if hasattr(axis, n)]
    return _stable({"stream": (axis.tvalid, axis.tready, [getattr(axis, n) for n in names])},
                   domain)


def check_axi_lite(axil):
    """Background process: all five channels keep what they offer; a response comes after all parts
    of its transaction, and there is one for each."""
    stable = _stable({
        "aw": (axil.awvalid, axil.awready, [axil.awaddr]),
        "w": (axil.wvalid, axil.wready, [axil.wdata, axil.wstrb]),
        "b": (axil.bvalid, axil.bready, [axil.bresp]),
        "ar": (axil.arvalid, axil.arready, [axil.araddr]),
        "r": (axil.rvalid, axil.rready, [axil.rdata, axil.rresp])}, "sync")
    due = dict.fromkeys(("aw", "w", "ar"), 0)

    async def responses(ctx):
        async for *_, aw, w, b, ar, r, offers_b, offers_r in ctx.tick().sample(
                *(getattr(axil, f"{c}valid") & getattr(axil, f"{c}ready")
                  for c in ("aw", "w", "b", "ar", "r")), axil.bvalid, axil.rvalid):
            if offers_b and not (due["aw"] and due["w"]):
                raise StreamViolation("bvalid before address and data")
            if offers_r and not due["ar"]:
                raise StreamViolation("rvalid before the address")
            due["aw"] += aw - b
            due["w"] += w - b
            due["ar"] += ar - r
    return stable, responses


def _stable(channels, domain):
    async def process(ctx):
        offered = {}
        signals = [s for v, r, payload in channels.values() for s in (v, r, *payload)]
        async for _, _, *values in ctx.tick(domain).sample(*signals):
            values = iter(values)
            for name, (_, _, payload) in channels.items():
                valid, ready = next(values), next(values)
                word = [next(values) for _ in payload]
                if name in offered and not valid:
                    raise StreamViolation(f"{name}: valid fell before the transfer")
                if name in offered and offered[name] != word:
                    raise StreamViolation(f"{name}: changed before the transfer")
                offered.pop(name, None)
                if valid and not ready:
                    offered[name] = word
    return process
