"""dxpu.crypto.aes and .sbox: AES-128 as FIPS 197 has it, in constant time."""

import random

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from dxpu.crypto.aes import Aes128
from dxpu.crypto.sbox import SubWord, table
from tests.support.crypto_bench import blocks, words
from tests.support.testbench import seed, simulate

BOTH = pytest.mark.parametrize("ram", [False, True], ids=["logic", "RAM"])


def encrypt(key, block):
    encryptor = Cipher(algorithms.AES128(key), modes.ECB()).encryptor()
    return encryptor.update(block) + encryptor.finalize()


def test_the_table_is_that_of_the_standard():
    """Rows 0, 5 and f of figure 7, and the example of 5.1.1."""
    sbox = bytes(table())
    assert sbox[:16].hex(" ") == "63 7c 77 7b f2 6b 6f c5 30 01 67 2b fe d7 ab 76"
    assert sbox[0x50:0x60].hex(" ") == "53 d1 00 ed 20 fc b1 5b 6a cb be 39 4a 4c 58 cf"
    assert sbox[0xF0:].hex(" ") == "8c a1 89 0d bf e6 42 68 41 99 2d 0f b0 54 bb 16"
    assert sbox[0x53] == 0xED
    assert sorted(sbox) == list(range(256))


@BOTH
def test_every_byte_in_every_place(ram):
    dut = SubWord(ram=ram)

    async def process(ctx):
        for n in range(256):
            given = bytes((n + 61 * k) % 256 for k in range(4))
            ctx.set(dut.i, int.from_bytes(given, "little"))
            await ctx.tick()
            assert ctx.get(dut.o).to_bytes(4, "little") == bytes(table()[b] for b in given)

    simulate(dut, process)


def run(dut, jobs, *, rng=None, delays=None):
    """Encrypt ``(key, block, chain)``; returns the results."""
    out = []

    async def give(ctx):
        for key, block, chain in jobs:
            for data, part in zip(words(block), words(key), strict=True):
                while rng and rng.random() < 0.3:
                    await ctx.tick()
                ctx.set(dut.i.payload, dict(data=data, key=part, chain=chain))
                ctx.set(dut.i.valid, 1)
                await ctx.tick().until(dut.i.ready)
                ctx.set(dut.i.valid, 0)
                ctx.set(dut.i.payload, dict(data=0, key=0, chain=0))

    async def take(ctx):
        given, cycle = None, 0
        while len(out) < 4 * len(jobs):
            ctx.set(dut.o.ready, not rng or rng.random() < 0.5)
            _, _, i, o, word = await ctx.tick().sample(
                dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready, dut.o.payload)
            if i:
                given = cycle
            if o:
                if delays is not None and len(out) % 4 == 0:
                    delays.append(cycle - given)
                out.append(word)
            cycle += 1

    simulate(dut, give, take)
    return blocks(out)


@BOTH
@pytest.mark.parametrize("key, plain, cipher", [
    # FIPS 197, appendix B and C.1
    ("2b7e151628aed2a6abf7158809cf4f3c", "3243f6a8885a308d313198a2e0370734",
     "3925841d02dc09fbdc118597196a0b32"),
    ("000102030405060708090a0b0c0d0e0f", "00112233445566778899aabbccddeeff",
     "69c4e0d86a7b0430d8cdb78070b4c55a"),
])
def test_the_examples_of_the_standard(ram, key, plain, cipher):
    key, plain = bytes.fromhex(key), bytes.fromhex(plain)
    assert run(Aes128(ram=ram), [(key, plain, 0)]) == [bytes.fromhex(cipher)]


@BOTH
def test_random_blocks_take_the_same_time(ram):
    """Also those whose key or data are zeros or ones, and whatever went before."""
    rng = random.Random(seed())
    keys = bytes(16), b"\xff" * 16, *(rng.randbytes(16) for _ in "123")
    jobs = [(key, block, 0) for key in keys
            for block in (bytes(16), b"\xff" * 16, rng.randbytes(16))]
    delays = []
    assert run(Aes128(ram=ram), jobs, delays=delays) == [encrypt(k, b) for k, b, _ in jobs]
    assert set(delays) == {52}


def test_chained_blocks_with_gaps():
    """CBC: a block is XORed to the result before it."""
    rng = random.Random(seed())
    jobs = [(rng.randbytes(16), rng.randbytes(16), n % 4 != 0) for n in range(20)]
    expected, last = [], bytes(16)
    for key, block, chain in jobs:
        last = encrypt(key, bytes(a ^ b for a, b in zip(block, last, strict=True)) if chain
                       else block)
        expected.append(last)
    assert run(Aes128(), jobs, rng=rng) == expected
