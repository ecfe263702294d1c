"""dxpu.fabric.credit.queues.queue_flags: what is filled, and what may be asked about."""

import random

from dxpu.fabric.credit.queues.queue_flags import QueueFlags
from tests.support.testbench import seed, simulate

ROWS = 3


def test_flags_follow_what_happens():
    rng = random.Random(seed())
    dut = QueueFlags(rows=ROWS)
    filled, asleep, wakes = set(), set(), 0

    async def run(ctx):
        nonlocal wakes
        for _ in range(500):
            now = {name: rng.random() < 0.3 for name in ("parked", "emptied", "refused", "passed")}
            came, left = (4 * rng.randrange(ROWS) + rng.randrange(3) for _ in range(2))
            wake = rng.getrandbits(ROWS) & rng.getrandbits(ROWS)
            for name, value in now.items():
                ctx.set(getattr(dut, name), value)
            ctx.set(dut.parked_queue, came)
            ctx.set(dut.dequeued_queue, left)
            ctx.set(dut.wake, wake)
            await ctx.tick()
            if now["emptied"]:
                filled.discard(left)
            if now["parked"]:
                filled.add(came)
            if now["refused"]:
                asleep.add(left)
            # What was said a cycle ago prevails over the answer of this cycle.
            woken = {n for n in range(ROWS)
                     if wakes >> n & 1 or now["passed"] and n == left // 4}
            asleep.difference_update({n for n in asleep if n // 4 in woken})
            wakes = wake
            assert ctx.get(dut.filled) == sum(1 << n for n in filled)
            assert ctx.get(dut.awake) == sum(1 << n for n in filled - asleep)

    simulate(dut, run)
