"""The stand-alone mode in the top of a board: `board.standalone`, and what it does to the proxy."""

from amaranth import *
from dxpu.bringup import StandAloneState
from dxpu.fabric.wire.format import Role
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.mapping.types import CommitCode
from dxpu.proxy.registers import IDENTITY
from dxpu_boards.board import Shape
from dxpu_boards.registers import BASES, board_block, gpu_count, stand_alone
from tests.support.board_top_bench import VERSA, simulate

SHAPE = Shape(slots=2, peers=2, streams=2)
BLOCK = board_block(VERSA.name, paths=2, extra=(stand_alone(),))
ADDRESS = BASES["board"] + BLOCK.address("standalone")
REGISTER = BLOCK.find("standalone").register
#: More than ten cycles for each of the 18 accesses of a set-up.
LONG = 500
#: Seconds for which a reset lasts at most, here.
RESET = 5e-6


class Written:
    """Plays the registers of the box; keeps what was written, by their paths, in order."""

    def __init__(self):
        self.words, self.node = [], 0xFFF

    async def serve(self, ctx, top):
        bus = top._proxy.bus
        placed = {base + p.address: (f"{name}.{p.path}", p.register) for name, (base, block)
                  in top._proxy.registers.blocks.items() for p in block.placed}
        await ctx.delay(RESET)
        ctx.set(bus.request.ready, 1)
        while True:
            request, = await ctx.tick().sample(bus.request.p).until(bus.request.valid)
            ctx.set(bus.request.ready, 0)
            path, register = placed[request.address]
            if request.write:
                self.words.append((path, register.unpack(request.data)))
                if path == "control.node":
                    self.node = request.data
            answer = {"control.identity": IDENTITY, "control.node": self.node,
                      "table.result": CommitCode.DONE.value}
            ctx.set(bus.response.p, {"data": 0 if request.write else answer[path], "error": 0})
            ctx.set(bus.response.valid, 1)
            await ctx.tick().until(bus.response.ready)
            ctx.set(bus.response.valid, 0)
            ctx.set(bus.request.ready, 1)

    def take(self):
        """Node, peer, and generation, use, target and path of each row, of what was written since.
        """
        said, rows, row = dict(self.words), [], {}
        for path, fields in self.words:
            block, _, name = path.partition(".")
            if block == "table":
                row[name] = fields
                if name == "commit":
                    rows.append((fields["row"], fields["generation"], fields["used"],
                                 row["target"]["node"], row["target"]["stream"],
                                 row["paths"]["mask"]))
        self.words.clear()
        return said["control.node"]["number"], said["control.peer[0].node"], rows


def test_empty_slots_are_not_bound(monkeypatch):
    """A box of three slots with two soft GPUs."""
    box = Written()

    async def testbench(ctx, top, asker):
        await ctx.delay(RESET)
        count = BASES["board"] + board_block(VERSA.name, paths=2,
                                             extra=(gpu_count(),)).address("gpus")
        assert await asker.read(ctx, count) == 2
        await asker.read(ctx, ADDRESS, write=REGISTER.pack(enable=1, node=0xFFF))
        ctx.set(top._proxy.refused, {
            "strobe": 1, "hello": {"role": Role.HOST, "offered": 1},
            "header": {"type": FrameType.HELLO, "src_node": 7, "dst_node": 0x101}})
        await ctx.tick()
        ctx.set(top._proxy.refused.strobe, 0)
        await ctx.tick().repeat(LONG)
        assert REGISTER.unpack(await asker.read(ctx, ADDRESS))["state"] == (
            StandAloneState.BOUND.value)
        assert dict(box.words)["control.present"] == {"slots": 0b011}
        assert [row[:3] for row in box.take()[2]] == [(0, 1, 1), (1, 1, 1)]

    simulate(monkeypatch, testbench, shape=Shape(slots=3, peers=1, streams=1, gpus=2),
             background=[box.serve], PULSE=1e-6)


def test_what_is_written_to_the_register_reaches_the_sequencer(monkeypatch):
    """Who is heard, whom it wants, that it is on, and each write of it."""
    box = Written()

    async def testbench(ctx, top, asker):
        refused = top._proxy.refused

        async def write(**fields):
            await asker.read(ctx, ADDRESS, write=REGISTER.pack(**fields))
            await ctx.tick().repeat(LONG)

        async def state():
            fields = REGISTER.unpack(await asker.read(ctx, ADDRESS))
            return StandAloneState(fields["state"]), fields["host"]

        async def hello(host, node, *, stream=0, path=0):
            ctx.set(refused, {
                "strobe": 1, "hello": {"role": Role.HOST, "offered": 1},
                "header": {"type": FrameType.HELLO, "src_node": host, "dst_node": node,
                           "stream": stream, "path": path}})
            await ctx.tick()
            ctx.set(refused.strobe, 0)
            await ctx.tick().repeat(LONG)

        await ctx.delay(RESET)
        # The Versa has a console, so it does nothing unless it is told to.
        await hello(0x042, 0x102)
        assert await state() == (StandAloneState.OFF, 0) and not box.words
        await write(enable=1, node=0x102)
        await hello(0x042, 0x101)
        assert await state() == (StandAloneState.LISTENS, 0) and not box.words
        await hello(0x042, 0x102, stream=1, path=1)
        assert await state() == (StandAloneState.BOUND, 0x042)
        assert box.take() == (0x102, {"number": 0x042, "valid": 1},
                              [(0, 1, 1, 0x042, 1, 0b10), (1, 1, 1, 0x042, 1, 0b10)])

        # The same again undoes it; so does what switches it off.
        await write(enable=1, node=0xFFF)
        assert await state() == (StandAloneState.LISTENS, 0x042)
        number, peer, rows = box.take()
        assert (number, peer["valid"]) == (0xFFF, 0)
        assert [row[:3] for row in rows] == [(0, 1, 0), (1, 1, 0)]
        await hello(0x055, 0x10A)
        assert await state() == (StandAloneState.BOUND, 0x055)
        assert box.take() == (0x10A, {"number": 0x055, "valid": 1},
                              [(0, 2, 1, 0x055, 0, 0b01), (1, 2, 1, 0x055, 0, 0b01)])
        await write(enable=0, node=0xFFF)
        assert await state() == (StandAloneState.OFF, 0x055)
        assert [row[:3] for row in box.take()[2]] == [(0, 2, 0), (1, 2, 0)]

    # The watchdog is content.
    simulate(monkeypatch, testbench, shape=SHAPE, background=[box.serve], PULSE=1e-6)
