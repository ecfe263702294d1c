"""Operations: what a request does, beside the golden model of a node."""

import random

import pytest

from dxpu.management.operations import Directory, Operations
from dxpu_model.management import Answer, ManagedNode, Operation, Request
from tests.support.crypto_bench import words
from tests.support.management_bench import FENCE_EPOCH, REGISTERS, Registers, serve
from tests.support.testbench import seed, simulate


def run(requests, rng):
    """The answers to ``requests`` (bytes), the registers, and the cycles of each."""
    dut, registers, answers = Operations(lambda: Directory(REGISTERS, FENCE_EPOCH)), Registers(), []

    async def memory(ctx):
        while True:
            _, _, reads, at = await ctx.tick().sample(dut.read, dut.request_at)
            if reads:
                ctx.set(dut.word, text[at] if at < len(text) else rng.getrandbits(32))

    async def process(ctx):
        nonlocal text
        for request in requests:
            text, got, cycles = words(request), {}, 0
            ctx.set(dut.words, len(text))
            ctx.set(dut.start, 1)
            done = False
            while not done:
                ctx.set(dut.write_ready, rng.random() < 0.8)
                _, _, done, size, wrote, write, ready, at, word = await ctx.tick().sample(
                    dut.done, dut.size, dut.wrote, dut.write, dut.write_ready, dut.answer_at,
                    dut.write_word)
                ctx.set(dut.start, 0)
                cycles += 1
                if write and ready:
                    got[at] = word
            assert sorted(got) == list(range(size))
            answers.append((b"".join(got[n].to_bytes(4, "little") for n in range(size)), wrote,
                            cycles))

    text = []
    simulate(dut, process, background=[memory, serve(dut.bus, registers, rng)],
             deadline=2_000_000)
    return answers, registers


def random_request(rng):
    """A request, more often right than wrong."""
    operations = []
    for _ in range(rng.choice((1, 1, 2, 3, 8, 40))):
        count = rng.choice((1, 1, 2, 4, 9, 20))
        address = rng.choice(list(REGISTERS))
        if rng.random() < 0.1:
            address = rng.choice((0x102, 0xFFFC, 0x1_0100, 0xFFFF_FF00, 0))
        if rng.random() < 0.4:
            operations.append(Operation.write(address, *(rng.getrandbits(32)
                                                         for _ in range(count))))
        else:
            operations.append(Operation(address, count))
    plain = bytearray(Request(rng.choice((0, 1, 2, 3, 5)), tuple(operations)).pack())
    while len(plain) > 340:
        return random_request(rng)
    if rng.random() < 0.2:
        plain[rng.randrange(4, min(len(plain), 20))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.1:
        plain = plain[:-4]
    if rng.random() < 0.1:
        plain += rng.randbytes(4)
    return bytes(plain[:340])


def test_random_requests():
    """Answers and registers are those of the golden model, and each way is taken."""
    rng = random.Random(seed())
    requests = [random_request(rng) for _ in range(300)]
    answers, registers = run(requests, rng)
    model = Registers()
    node = ManagedNode(bytes(16), bytes(6), model, FENCE_EPOCH, lambda: rng.getrandbits(32))
    found = set()
    for request, (answer, wrote, _) in zip(requests, answers, strict=True):
        node._writer = None
        expected = node._run(1, request)
        assert Answer.unpack(answer) == expected, request.hex()
        assert wrote == (node._writer == 1)
        found.add((expected.status, wrote))
    assert registers.log == model.log and registers.values == model.values
    assert len(found) == 5


@pytest.mark.parametrize("request_,cycles", [
    (Request(0, (Operation(0x100),)), 31),
    (Request(0, (Operation(0x100, 80),)), 31 + 79 * 7),
    (Request(1, (Operation.write(0x100, *range(80)),)), 35 + 79 * 9),
])
def test_cycles(request_, cycles):
    """Of requests whose registers answer in the next cycle."""
    rng = random.Random(0)
    rng.random = lambda: 0.5  # nobody waits
    (_, _, took), = run([request_.pack()], rng)[0]
    assert took == cycles

