"""What surrounds parts of management: registers, and a bus to them."""

__all__ = ["FENCE_EPOCH", "REGISTERS", "Registers", "serve"]

FENCE_EPOCH = 0x10

#: Registers of the bench, and whether they can be written.
REGISTERS = {FENCE_EPOCH: True, **{a: a < 0x300 for a in range(0x100, 0x400, 4)}}


class Registers:
    """Their values, and what was written to them, for the golden model or a bus."""

    def __init__(self):
        self.values = {a: a << 16 for a in REGISTERS} | {FENCE_EPOCH: 0}
        self.log = []

    def has(self, address, *, write):
        return address in REGISTERS and (REGISTERS[address] or not write)

    def read(self, address):
        return self.values[address]

    def write(self, address, value):
        self.log.append((address, value))
        self.values[address] = value


def serve(bus, registers, rng):
    """Process that answers the accesses of a master."""
    async def process(ctx):
        while True:
            while rng.random() < 0.3:
                await ctx.tick()
            ctx.set(bus.request.ready, 1)
            request, = await ctx.tick().sample(bus.request.p).until(bus.request.valid)
            ctx.set(bus.request.ready, 0)
            data = 0
            assert registers.has(request.address, write=request.write)
            if request.write:
                registers.write(request.address, request.data)
            else:
                data = registers.read(request.address)
            while rng.random() < 0.3:
                await ctx.tick()
            ctx.set(bus.response.p, {"data": data, "error": 0})
            ctx.set(bus.response.valid, 1)
            await ctx.tick().until(bus.response.ready)
            ctx.set(bus.response.valid, 0)
    return process
