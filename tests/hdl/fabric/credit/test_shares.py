"""dxpu.fabric.credit.shares: what is withheld, by the number of rows that are busy."""

import random

import pytest

from dxpu.fabric.credit.shares import GrantShares
from dxpu.fabric.credit.sizing import LINE_BYTES, LINE_OVERHEAD, FlowControl, grants_in, shares_of
from dxpu.proxy.box import BoxCore
from dxpu.tlp.types import TlpClass
from tests.support.testbench import seed, simulate

P, NP, CPL = TlpClass
INITIAL = ((32, 416), (16, 16), (16, 80))
#: Shares for 1, 2, 4 and more busy rows.
SHARES = (INITIAL, ((32, 300), (16, 16), (16, 80)), ((20, 150), (16, 16), (10, 60)),
          ((4, 40), (16, 16), (4, 40)))


class Golden:
    """Rows whose queues a TLP left, with the ticks since then."""

    def __init__(self, rows):
        self.rows, self.ticks = rows, {}

    def cycle(self, released, tick):
        """A cycle, in which TLPs left and a tick comes."""
        if tick:
            self.ticks = {row: n + 1 for row, n in self.ticks.items() if n < 1}
        for row, cls in released:
            if cls is not NP:
                self.ticks[row] = 0

    def granted(self, row):
        """Headers and units of each class."""
        def share(n):
            return SHARES[min(len(SHARES) - 1, max(0, (n - 1).bit_length()))]
        return share(len(self.ticks) if row in self.ticks else self.rows)


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_shares_are_those_of_the_busy_rows(rows):
    dut, golden = GrantShares(rows=rows, initial=INITIAL, shares=SHARES), Golden(rows)
    rng, levels = random.Random(seed()), set()

    async def process(ctx):
        for _ in range(120):
            # Some queues are busy at a time, and others later.
            some = [(rng.randrange(rows), rng.choice(list(TlpClass)))
                    for _ in range(rng.choice((0, 1, 2, 6)))]
            for _ in range(rng.randrange(1, 20)):
                tick, left = rng.random() < 0.1, [rng.choice(some)] if some else []
                for row, cls in left:
                    ctx.set(dut.released, dict(row=row, cls=cls, units=rng.randrange(33)))
                ctx.set(dut.released_strobe, len(left))
                ctx.set(dut.tick, tick)
                await ctx.tick()
                golden.cycle(left, tick)
            ctx.set(dut.released_strobe, 0)
            ctx.set(dut.tick, 0)
            await ctx.tick().repeat(2)
            levels.add(len(golden.ticks))
            for row in range(rows):
                ctx.set(dut.row, row)
                got = [(headers - ctx.get(less.header), units - ctx.get(less.data))
                       for less, (headers, units) in zip(dut.withheld, INITIAL, strict=True)]
                assert got == list(golden.granted(row))

    simulate(dut, process)
    assert levels >= {0, 1} and max(levels) > rows // 2


@pytest.mark.parametrize("share", [((0, 40), (16, 16), (4, 40)), ((4, 40), (17, 16), (4, 40))])
def test_shares_must_be_within_what_is_granted(share):
    with pytest.raises(ValueError, match="shares must be within"):
        GrantShares(rows=2, initial=INITIAL, shares=[INITIAL, share])


def box_grants(width):
    return grants_in(width, [8 * size * max(1, width // 64) // width for size in BoxCore.REGIONS])


@pytest.mark.parametrize("width", [64, 512])
def test_shares_of_a_box_fit_the_line(width):
    grants, rows = box_grants(width), 8
    flow = FlowControl.of(width, grants, end="box")
    shares, limit = flow.shares(rows), LINE_BYTES * max(1, width // 64)
    assert shares[0] == grants, "a row that is busy alone has all"
    for n, share in enumerate(shares):
        assert share[1] == grants[1]
        for headers, units in (share[0], share[2]):
            # Each may send the largest TLP, and another one meanwhile.
            assert headers >= 4 and units >= 40
            assert (1 << n) * (16 * units + LINE_OVERHEAD * headers) <= limit


def test_nothing_is_withheld_of_what_fits():
    assert shares_of(((4, 40), (8, 8), (4, 40)), 8, 1 << 20) is None
    assert FlowControl.of(64).shares(8) is None
