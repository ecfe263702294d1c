"""dxpu.fabric.credit.grants: limits count what left, and are told in time."""

from dxpu.fabric.credit.grants import CreditGrants
from dxpu.tlp.types import TlpClass
from tests.support.testbench import simulate

P, NP, CPL = TlpClass
ROWS = 3
INITIAL = ((8, 80), (4, 8), (6, 70))


def grants(process, **options):
    dut = CreditGrants(rows=ROWS, initial=INITIAL, **options)

    async def run(ctx):
        await process(ctx, dut)

    simulate(dut, run)


async def release(ctx, dut, row, cls, units):
    ctx.set(dut.released, dict(row=row, cls=cls, units=units))
    ctx.set(dut.released_strobe, 1)
    await ctx.tick()
    ctx.set(dut.released_strobe, 0)


def limits_of(ctx, dut, row):
    ctx.set(dut.row, row)
    return [(ctx.get(dut.limits[n].header), ctx.get(dut.limits[n].data)) for n in range(3)]


def test_grants_begin_anew_with_each_life_and_count_what_leaves():
    async def process(ctx, dut):
        for _ in range(2):
            ctx.set(dut.open, 0)
            await ctx.tick().repeat(3)
            ctx.set(dut.open, 0b110)
            # From the first cycle on: a frame may just be on its way.
            assert limits_of(ctx, dut, 1) == list(INITIAL)
            await ctx.tick().repeat(3)
            want = [list(pair) for pair in INITIAL]
            assert limits_of(ctx, dut, 1) == [tuple(w) for w in want]
            for cls, units in ((P, 32), (P, 0), (NP, 1), (CPL, 256), (P, 7)):
                await release(ctx, dut, 1, cls, units)
                await release(ctx, dut, 0, cls, units)  # closed
                want[cls.value][0] += 1
                want[cls.value][1] += units
                assert limits_of(ctx, dut, 1) == [tuple(w) for w in want]
            assert limits_of(ctx, dut, 2) == list(INITIAL)
        assert limits_of(ctx, dut, 0) == list(INITIAL)

    grants(process)


def test_limits_are_told_in_time_and_again():
    """What a frame has carried needs none of its own; without one it is told, and told twice."""
    period = 16

    async def process(ctx, dut):
        told = []

        async def wait(cycles):
            """Rows that frames are wanted for; they are sent."""
            seen = []
            ctx.set(dut.want.ready, 1)
            for _ in range(cycles):
                *_, valid, row = await ctx.tick().sample(dut.want.valid, dut.want.payload)
                if valid:
                    seen.append(row)
                    await tell(row, 7)
            return seen

        async def tell(row, mask):
            ctx.set(dut.told_row, row)
            ctx.set(dut.told_mask, mask)
            ctx.set(dut.told, 1)
            await ctx.tick()
            ctx.set(dut.told, 0)
            told.append(row)

        ctx.set(dut.open, 0b011)
        assert sorted(await wait(3 * period)) == [0, 1]
        assert sorted(await wait(18 * period)) == [0, 1], "once more"
        # From here on nothing, until the slow refresh.
        quiet = await wait(40 * period)
        assert not quiet
        await release(ctx, dut, 1, NP, 0)
        ctx.set(dut.row, 1)
        assert ctx.get(dut.due) == 0b010
        await tell(1, 0b010)  # with a frame that goes anyhow
        assert ctx.get(dut.due) == 0
        assert await wait(3 * period) in ([], [1])
        assert set(await wait(18 * period)) <= {1}
        assert sorted(set(await wait(16 * 17 * period))) == [0, 1], "refreshed"

    grants(process, period=period)
