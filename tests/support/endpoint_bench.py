"""The soft GPU in Amaranth's simulator, with a host in Python at its port."""

from pathlib import Path

from dxpu.endpoint.gpu import SoftGpu
from dxpu.endpoint.register_map import COUNTERS, REGISTERS
from dxpu.stream import payload_shape
from dxpu.tlp.types import CompletionStatus, Malformed, TlpClass
from dxpu_model.tlp import KINDS, Tlp, classify, malformed
from dxpu_sim.endpoint.gpu import Command
from dxpu_sim.pcie.raw_host import answer, enabled
from dxpu_tools.collection import undisturbed
from tests.support.testbench import Packet, beats, check_stream, simulate

__all__ = ["BAR0", "BAR2", "GPU", "ROOT", "GpuBench", "mutated"]

GPU, ROOT = 3 << 8, 8
BAR0, BAR2, RING, MEMORY = 0xe000_0000, 0x7_0000_0000, 0x9000_0000, 0x12_3456_0000
SC = CompletionStatus.SC


def mutated(module, name, right, wrong):
    """Class ``name`` of ``module`` with one change in its source."""
    file = Path(module.__file__)
    source = file.read_text()
    assert source.count(right) == 1, f"{file.name} has not just one {right!r}"
    space = {"__name__": module.__name__, "__package__": module.__package__}
    exec(undisturbed(compile, source.replace(right, wrong), file, "exec"), space)  # noqa: S102
    return space[name]


class GpuBench:
    """A soft GPU of 4 KiB and its host: configuration, video memory, copies.

    Parameters
    ----------
    rng : random.Random
    width : int
    credits : dict
        By class: initial credits of the GPU, TLPs and units of 16 bytes. They return ``RETURN``
        cycles after a TLP was taken.
    ready : float
        Share of cycles in which a beat is taken.
    forged : float
        Share of answers to reads that follow a wrong answer.
    """

    VRAM = 4096
    RETURN = 100

    def __init__(self, rng, *, width=32, credits=None, ready=1.0, forged=0.0, **options):
        self.rng = rng
        self.dut = SoftGpu(width, vram_bytes=self.VRAM, **options)
        self.port = self.dut.port
        self._credits = credits or dict.fromkeys(TlpClass, (8, 64))
        self._ready, self._forged = ready, forged
        #: Number of wrong answers sent.
        self.forgeries = 0
        self._queue: list[Tlp] = []
        self.completions: dict[int, list[Tlp]] = {}
        self.memory = bytearray(rng.randbytes(8192))
        self.ring = bytearray(32)
        self._tag = 0
        self.head = 0
        self.max_payload, self.max_read = 128, 512
        #: Completions of each read still to be sent.
        self._answers: list[list[Tlp]] = []

    def run(self, scenario, *, deadline=60_000):
        """Run ``scenario(ctx)``."""
        async def main(ctx):
            ctx.set(self.dut.reset, 0)
            for cls, (headers, units) in self._credits.items():
                limits = getattr(self.port, f"rx_{cls.name.lower()}")
                ctx.set(limits, {"header": headers, "data": units})
            await ctx.tick().until(self.port.link_up)
            await scenario(ctx)
        simulate(self.dut, main, background=[self._feed, self._collect,
                                             check_stream(self.port.rx, "rx")],
                 deadline=deadline)

    # Processes.

    async def _feed(self, ctx):
        while True:
            if not self._queue and self._answers:
                n = self.rng.randrange(len(self._answers))
                if self.rng.random() < self._forged:
                    self._queue.append(self._forge(self._answers[n][0]))
                    self.forgeries += 1
                self._queue.append(self._answers[n].pop(0))
                self._answers = [flow for flow in self._answers if flow]
            if not self._queue:
                await ctx.tick()
                continue
            raw = self._queue.pop(0)
            raw = raw if isinstance(raw, bytes) else raw.pack()
            stream = getattr(self.port, f"tx_{classify(raw).cls.name.lower()}")
            for beat in beats(payload_shape(stream), Packet(raw)):
                ctx.set(stream.payload, beat)
                ctx.set(stream.valid, 1)
                await ctx.tick().until(stream.ready)
                ctx.set(stream.valid, 0)

    def _forge(self, right):
        """A completion that differs slightly from ``right``."""
        wrong, rng = Tlp.unpack(right.pack()), self.rng
        kind = rng.randrange(5)
        if kind == 0:
            wrong.tag ^= 1 << rng.randrange(3, 6)
        elif kind == 1:
            wrong.requester_id ^= 1 << rng.randrange(16)
        elif kind == 2:
            wrong.byte_count = (wrong.byte_count ^ 1 << rng.randrange(12)) or 4096
        elif kind == 3:
            wrong.lower_address ^= 1 << rng.randrange(7)
        else:
            due = wrong.byte_count + (wrong.lower_address & 3)
            wrong.length = min((due + 3) // 4 + 1, self.max_payload // 4)
            if 4 * wrong.length < due:
                wrong.requester_id ^= 1
        wrong.payload = rng.randbytes(4 * wrong.length)
        return wrong

    async def _collect(self, ctx):
        rx, raw = self.port.rx, b""
        used = {cls: [0, 0] for cls in TlpClass}
        back, now = [], 0
        while True:
            now += 1
            while back and back[0][0] <= now:
                _, limits, units = back.pop(0)
                ctx.set(limits.header, ctx.get(limits.header) + 1)
                ctx.set(limits.data, ctx.get(limits.data) + units)
            ctx.set(rx.ready, self.rng.random() < self._ready)
            *_, valid, ready, beat = await ctx.tick().sample(rx.valid, rx.ready, rx.payload)
            if not (valid and ready):
                continue
            assert beat.first == (not raw)
            raw += int(beat.data).to_bytes(64, "little")[:4 * beat.dwords]
            if not beat.last:
                continue
            tlp, info, bad = Tlp.unpack(raw), classify(raw), malformed(raw, self.max_payload)
            raw = b""
            assert bad == Malformed.NONE, (bad, tlp)
            cls, units = info.cls, (len(tlp.payload) + 15) // 16
            limits = getattr(self.port, f"rx_{cls.name.lower()}")
            used[cls] = [used[cls][0] + 1, used[cls][1] + units]
            header, data = ctx.get(limits.header), ctx.get(limits.data)
            assert used[cls][0] <= header and used[cls][1] <= data, f"no credits for {tlp}"
            await self._take(tlp, info)
            back.append((now + self.RETURN, limits, units))

    async def _take(self, tlp, info):
        if info.cls is TlpClass.CPL:
            assert tlp.completer_id == GPU, tlp
            self.completions.setdefault(tlp.tag, []).append(tlp)
            return
        assert tlp.requester_id == GPU and info.is_memory, tlp
        if info.cls is TlpClass.NP:
            assert 4 * tlp.length <= self.max_read + 4
            self._answers.append(list(answer(tlp, self.held, self.rng, completer_id=ROOT,
                                             max_payload=self.max_payload)))
            return
        for n, on in enumerate(enabled(tlp)):
            if on:
                self.memory[tlp.address + n - MEMORY] = tlp.payload[n]

    def held(self, address, length):
        """Bytes of host memory."""
        base, memory = (RING, self.ring) if address < MEMORY else (MEMORY, self.memory)
        assert address >= base and address - base + length <= len(memory)
        return bytes(memory[address - base:address - base + length])

    # The host.

    def begin(self, tlp):
        """Send a non-posted request."""
        self._tag = (self._tag + 1) % 256
        tlp.tag, tlp.requester_id = self._tag, ROOT
        self._queue.append(tlp)
        return tlp

    async def request(self, ctx, tlp):
        """Send a non-posted request; returns its completions."""
        return await self.finish(ctx, self.begin(tlp))

    async def finish(self, ctx, tlp):
        """Wait for the completions of a request."""
        while True:
            await ctx.tick()
            last = self.completions.get(tlp.tag, [None])[-1]
            if last is not None and (last.status or not last.payload or tlp.kind[:3] != "MRd" or (
                    last.byte_count <= 4 * last.length - (last.lower_address & 3))):
                return self.completions.pop(tlp.tag)

    async def config(self, ctx, register, value=None, *, enables=15):
        """Read or write a dword of configuration space."""
        tlp = Tlp(*KINDS["CfgRd0" if value is None else "CfgWr0"], length=1, first_be=enables,
                  target_id=GPU, register=register // 4,
                  payload=b"" if value is None else value.to_bytes(4, "little"))
        completion, = await self.request(ctx, tlp)
        assert completion.status == 0 and completion.byte_count == 4
        return int.from_bytes(completion.payload, "little")

    async def start(self, ctx, *, payload=0):
        """Set up bus number, BARs, ring."""
        for register, value in ((0x10, BAR0), (0x18, BAR2 & 0xffff_ffff), (0x1c, BAR2 >> 32),
                                (0x6c, payload << 5 | 2 << 12), (0x04, 6)):
            await self.config(ctx, register, value)
        self.max_payload = 128 << payload
        for name, value in (("RING_LOW", RING), ("RING_SIZE", 1), ("READ_SIZE", 64)):
            self.post(BAR0 + REGISTERS[name], value.to_bytes(4, "little"))

    def post(self, address, data, *, first_be=15, last_be=None, **fields):
        """Send a memory write."""
        length = len(data) // 4
        self._queue.append(Tlp(
            *KINDS["MWr64" if address >> 32 else "MWr32"], length=length, first_be=first_be,
            last_be=(15 if length > 1 else 0) if last_be is None else last_be, address=address,
            payload=data, requester_id=ROOT, **fields))

    async def register(self, ctx, name):
        """Read a register."""
        completion, = await self.request(ctx, Tlp(
            *KINDS["MRd32"], length=1, first_be=15, address=BAR0 + (REGISTERS | COUNTERS)[name]))
        assert completion.status == 0
        return int.from_bytes(completion.payload, "little")

    async def vram(self, ctx):
        """Content of the video memory."""
        pieces = await self.request(ctx, Tlp(*KINDS["MRd64"], length=1024, first_be=15, last_be=15,
                                             address=BAR2))
        return b"".join(piece.payload for piece in pieces)

    async def copy(self, ctx, opcode, host, vram, length):
        """Run a copy from or to byte ``host`` of the host's memory; returns STATUS."""
        self.head += 1
        self.ring[:] = Command(opcode, 0, MEMORY + host, vram, length, 0).pack()
        self.post(BAR0 + REGISTERS["DOORBELL"], self.head.to_bytes(4, "little"))
        while (status := await self.register(ctx, "STATUS")) & 1:
            await ctx.tick().repeat(50)
        return status


