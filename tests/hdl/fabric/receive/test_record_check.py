"""dxpu.fabric.receive.record_check against CRC-32C of the model."""

import random

import pytest

from dxpu.fabric.receive.record_check import RecordCheck
from dxpu.stream import WIDTHS
from dxpu_model.crc import crc32c
from tests.support.mutate import mutant
from tests.support.testbench import seed, simulate


def pieces(width, rng, split):
    """Pieces of a record or body, and whether its CRC is right; that of the part before ``resume``
    of DATA."""
    lanes, binding = width // 32, rng.getrandbits(32)
    resumed = split and rng.random() < 0.4
    words = [rng.getrandbits(32) for _ in range(rng.randint(1, 3 * lanes + 4))]
    before = [rng.getrandbits(32) for _ in range(3)] if resumed else []
    crc = crc32c(b"".join(word.to_bytes(4, "little") for word in before + words)) ^ binding
    good = rng.random() < 0.6
    if not good:
        crc ^= 1 << rng.randrange(32)
    register = 0xFFFF_FFFF ^ crc32c(b"".join(word.to_bytes(4, "little") for word in before))
    # At widths above 32 the first lane of DATA is not the TLP's.
    words = [0] * (resumed and lanes > 1) + words + [crc]
    cut = [words[n:n + lanes] for n in range(0, len(words), lanes)]
    return [dict(
        valid=1, data=sum(word << 32 * n for n, word in enumerate(part)), dwords=len(part),
        first=n == 0, end=n == len(cut) - 1, binding=binding, record=1,
        resume=resumed and n == 0) for n, part in enumerate(cut)], register, good


def verdicts(design, width, split=False, count=60):
    """Of each frame of up to three records: whether one is bad, as checked and as it is; and the
    cycles from its end to its verdict."""
    rng = random.Random(seed())
    dut, right, late, found = design(width, split=split), [], [], []

    async def process(ctx):
        now = 0

        async def tick():
            nonlocal now
            await ctx.tick()
            now += 1
            if ctx.get(dut.done):
                found.append(ctx.get(dut.bad_record))
                late[-1] = now - late[-1]
                assert not ctx.get(dut.bad_body)

        for _ in range(count):
            records = [pieces(width, rng, split) for _ in range(rng.randint(1, 3))]
            right.append(not all(good for _, _, good in records))
            for record, register, _ in records:
                for piece in record:
                    while rng.random() < 0.2:
                        ctx.set(dut.piece.valid, 0)
                        await tick()
                    ends = record is records[-1][0] and piece["end"]
                    ctx.set(dut.piece, piece | dict(eof=ends))
                    ctx.set(dut.resume, register)
                    if ends:
                        late.append(now)
                    await tick()
            ctx.set(dut.piece, {})
            await tick()
            while len(found) < len(right):
                await tick()

    simulate(dut, process)
    return found, right, {*late}


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("width", WIDTHS)
def test_records_with_a_wrong_crc_are_found(width, split):
    found, right, late = verdicts(RecordCheck, width, split)
    assert found == right and {*right} == {False, True}
    assert late == {RecordCheck(width).latency}


@pytest.mark.parametrize("change", [
    ("~piece.binding & closes", "~piece.binding"),
    ("~piece.binding & closes", "piece.binding & closes"),
    ("piece.dwords == n + 1", "piece.dwords == lanes"),
    ("(state & ~first.replicate(32))", "state"),
    ("words[0] ^= piece.first.replicate(32)", "pass"),
], ids=str)
def test_mutants_are_found(change):
    found, right, _ = verdicts(mutant(RecordCheck, change), 64)
    assert found != right
