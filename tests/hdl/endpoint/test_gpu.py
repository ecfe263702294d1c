"""dxpu.endpoint: the whole soft GPU with a host in Python, and mutants of its parts."""

import random

import pytest
from dxpu.endpoint import completer, engine, gpu, intake, memory, posted, reads, sender
from dxpu.endpoint.config_map import GpuIdentity
from dxpu.endpoint.gpu import SoftGpu
from dxpu.endpoint.register_map import MSIX_TABLE, REGISTERS
from dxpu.tlp.types import TlpClass
from dxpu_model.tlp import KINDS, Tlp
from dxpu_sim.endpoint.gpu import COPY_TO_GPU, COPY_TO_HOST
from dxpu_sim.pcie.raw_host import check_answer
from tests.support.endpoint_bench import BAR0, BAR2, GpuBench, mutated
from tests.support.testbench import seed
from tests.support.widths import some_widths

#: Credits for one TLP of each class.
FEW = {TlpClass.P: (1, 16), TlpClass.NP: (1, 0), TlpClass.CPL: (1, 16)}


def work(bench, *, rounds=2, deadline=60_000):
    """Random accesses to the video memory and copies, compared with a model."""
    rng = bench.rng

    async def scenario(ctx):
        await bench.start(ctx, payload=1)
        model = bytearray(await bench.vram(ctx))
        for number in range(rounds):
            # Writes and reads of any bytes, several at once.
            for first, last in ((8, 7), (12, 3), (14, 1)):
                start, length = 4 * rng.randrange(900), rng.randrange(2, 30)
                data = rng.randbytes(4 * length)
                bench.post(BAR2 + start, data, first_be=first, last_be=last)
                skipped, end = {8: 3, 12: 2, 14: 1}[first], {1: 3, 3: 2, 7: 1}[last]
                model[start + skipped:start + 4 * length - end] = data[skipped:4 * length - end]
            asked = []
            for length, first in ((1, 15), (rng.randrange(2, 90), 14), (rng.randrange(90, 200), 8)):
                start = 4 * rng.randrange(1024 - length)
                read = Tlp(*KINDS["MRd64"], length=length, first_be=first,
                           last_be=rng.choice([1, 7, 15]) if length > 1 else 0,
                           address=BAR2 + start, tc=rng.randrange(8), attr=rng.randrange(8))
                asked.append((bench.begin(read), start, length))
            for read, start, length in asked:
                pieces = await bench.finish(ctx, read)
                check_answer(read, pieces, model[start:start + 4 * length],
                             max_payload=bench.max_payload)
            for opcode in (COPY_TO_GPU, COPY_TO_HOST):
                host, vram = rng.randrange(3000, 4500), rng.randrange(2000)
                vram += (host + rng.randrange(1, 4) - vram) % 4  # never in step
                length = 9 if opcode == COPY_TO_HOST and number else rng.randrange(600, 1200)
                before = bytes(bench.memory)
                assert await bench.copy(ctx, opcode, host, vram, length) == 0
                if opcode == COPY_TO_GPU:
                    model[vram:vram + length] = before[host:host + length]
                else:
                    before = before[:host] + model[vram:vram + length] + before[host + length:]
                assert bench.memory == before, (opcode, host, vram, length)
        assert await bench.vram(ctx) == bytes(model)
        # Two words of the store by one read, while others are written.
        for _ in range(4):
            entry, where = rng.randbytes(8), BAR0 + MSIX_TABLE + 16 * rng.randrange(8)
            bench.post(where, entry)
            pair = bench.begin(Tlp(*KINDS["MRd32"], length=2, first_be=15, last_be=15,
                                   address=where))
            for _ in range(4):
                bench.post(BAR0 + REGISTERS["SCRATCH"], rng.randbytes(4))
            answer, = await bench.finish(ctx, pair)
            assert answer.payload == entry
        assert await bench.register(ctx, "UNSUPPORTED") == 0
        assert await bench.register(ctx, "UNEXPECTED") == bench.forgeries
    bench.run(scenario, deadline=deadline)


@pytest.mark.parametrize("width", some_widths(32, of=(32, 256)))
def test_accesses_and_copies(width):
    work(GpuBench(random.Random(seed()), width=width, ready=0.8, forged=0.4))


def judge():
    """What mutants are held against."""
    work(GpuBench(random.Random(1), forged=0.7, credits={
        TlpClass.P: (4, 17), TlpClass.NP: (8, 0), TlpClass.CPL: (8, 64)}), deadline=15_000)


def test_the_judge_of_mutants_lets_the_design_pass():
    judge()


def test_credits_for_one_tlp():
    work(GpuBench(random.Random(seed()), credits=FEW), rounds=1)


@pytest.mark.parametrize("module, name, right, wrong", [
    (completer, "Completer", "limit[:5].eq(-offset)", "limit[:5].eq(0)"),
    (reads, "Reads", "(info.byte_count == bytes_left[:12])", "1"),
    *(pytest.param(*mutant, marks=pytest.mark.long) for mutant in (
        (sender, "Sender", "(1 if left is None else left >= units)", "1"),
        (intake, "Intake", "(each is TlpClass.NP)", "0"),
        (completer, "Completer", "+ request.lower_address[:2]", ""),
        (engine, "Engine", "(~host[2:12] & mask[2:]) + 1", "mask[2:] + 1"),
        (engine, "Engine", "Cat(last_byte >= n for n in range(4))", "15"),
        (engine, "Engine", "Mux(counts, skipped + 3, -skipped)", "Mux(counts, 3, -skipped)"),
        (reads, "Reads", "Mux(first, 15 << skipped, 15)", "15"),
        (reads, "Reads", "(info.tag[3:5] == Array(given)[slot])", "1"),
        (reads, "Reads", "(info.lower_address == entry.lower)", "1"),
        (reads, "Reads", "(info.payload_dwords <= entry.dwords)", "1"),
        (memory, "ByteMemory", "self.read_address[2:] + 1", "self.read_address[2:]"),
        (completer, "Completer", "& ~o.index[2]", "& 0"),
        (engine, "Engine", "Cat(settings.ring, settings.fence)", "C(14, 4)"),
        (posted, "Posted", "Mux(left == 1, info.last_be, 15)", "15"))),
])
def test_mutants_are_found(module, name, right, wrong, monkeypatch):
    """The bench is one that a wrong design does not pass."""
    monkeypatch.setattr(gpu, name, mutated(module, name, right, wrong))
    with pytest.raises((AssertionError, TimeoutError)):
        judge()


def test_arguments():
    for value in (2048, 5000, 1 << 21, "4096"):
        with pytest.raises(ValueError, match="vram_bytes must be a power of two from 4096 to "
                                             f"1048576, not {value!r}"):
            SoftGpu(64, vram_bytes=value)
    for value in (0, 9):
        with pytest.raises(ValueError, match=f"tags must be 1 to 8, not {value}"):
            SoftGpu(64, tags=value)
    with pytest.raises(ValueError, match="timeout must be an integer of at least 16, not 5"):
        SoftGpu(64, timeout=5)
    with pytest.raises(ValueError, match="serial must be a number of 64 bits, not -1"):
        GpuIdentity(serial=-1)
    with pytest.raises(ValueError, match="name must be up to 64 ASCII characters"):
        GpuIdentity(name="x" * 65)
