"""dxpu_model.keyed: the calculations of keyed sessions, from the text of the page, and by the
gateware's CMAC."""

import random
import re
from pathlib import Path

import pytest
from dxpu.crypto.cmac import Cmac
from dxpu.crypto.sbox import table

from dxpu_model import keyed
from dxpu_model.keyed import HELLO_ACK, HELLO_DONE, Ends, Opening
from dxpu_model.wire import Frame, Hello, build
from tests.support.crypto_bench import blocks, give_message, hold_key, with_cipher
from tests.support.testbench import collect_words, seed, simulate

PAGE = Path(__file__).parents[2] / "docs/reference/keyed-sessions.md"

KEY = bytes(range(16))
#: Node 0x105 opens stream 3 with node 0x00A.
ENDS = Ends(opener=0x105, answerer=0x00A, stream=3)
HELLO = bytes.fromhex("a0a1a2a3 1d0c 0000 00 00 00 01 05ee 0040 00fa 2ee0 0003 0007 00000000")
ANSWER = bytes.fromhex("a0a1a2a3 beef 1d0c 01 08 00 01 05ee 0040 00fa 2ee0 0003 0009 00000001")
OPENING = Opening(ENDS, HELLO, ANSWER, bytes.fromhex("a0a1a2a3a4a5a6a7"),
                  bytes.fromhex("b0b1b2b3b4b5b6b7"))

#: The messages, put together by hand: label, version and type, flags and count, nodes, slots,
#: stream; tag; the fields of HELLO_ACK; both nonces; the fields of HELLO.
MESSAGES = {
    "knock": b"DXFK" + bytes.fromhex("10 00 00a105 00 00 03"),
    "HELLO_ACK": b"DXF1" + bytes.fromhex("11 00 10500a 00 00 03 1d0c") + ANSWER + bytes.fromhex(
        "a0a1a2a3a4a5a6a7 b0b1b2b3b4b5b6b7") + HELLO,
    "HELLO_DONE": b"DXF1" + bytes.fromhex("1b 00 00a105 00 00 03 beef") + ANSWER + bytes.fromhex(
        "a0a1a2a3a4a5a6a7 b0b1b2b3b4b5b6b7") + HELLO,
    "first numbers": b"DXFS" + bytes.fromhex("a0a1a2a3a4a5a6a7 b0b1b2b3b4b5b6b7"),
    "check value": b"DXFV",
}
VECTORS = {
    "knock": "5e34a05d65f19cb02fb48dbdbf23e933",
    "HELLO_ACK": "a7b529def607bf6a188ac52569c6dacc",
    "HELLO_DONE": "9e68c44ef169321b8fb30d3555789eb1",
    "first numbers": "190272e66c309744f5c92f13629ab3df",
    "check value": "3990e17df211a01b9ea00f1b1e87c110",
}


def by_gateware(message):
    """CMAC by :class:`~dxpu.crypto.cmac.Cmac`."""
    dut, got = Cmac(), []

    async def process(ctx):
        await give_message(ctx, dut.use.i, message)
        while len(got) < 4:
            await ctx.tick()

    simulate(with_cipher(dut), process, background=[
        collect_words(dut.use.o, 10**6, got),
        hold_key(dut.use, [KEY], dut.cipher.i.valid)])
    return blocks(got)[0]


@pytest.mark.parametrize("name", MESSAGES)
def test_vectors(name):
    """Those of the page are what the gateware's parts make of the messages, and the model of the
    frames."""
    mac = by_gateware(MESSAGES[name])
    assert mac.hex() == VECTORS[name]
    assert f"| {name} | `{VECTORS[name]}` |" in PAGE.read_text()
    if name == "knock":
        assert ENDS.knock(KEY) == mac
    elif name == "first numbers":
        assert OPENING.first_numbers(KEY) == (int(mac.hex()[:6], 16), int(mac.hex()[6:12], 16))
    elif name == "check value":
        assert keyed.check_value(KEY) == mac[:4]
    else:
        kind = {"HELLO_ACK": HELLO_ACK, "HELLO_DONE": HELLO_DONE}[name]
        assert OPENING.proof(KEY, kind) == mac
        assert len(OPENING.message(kind)) == 86  # as the page says


def test_the_header_is_that_of_the_frames():
    """Bytes 14 to 20 and the stream of a frame that the wire's model builds."""
    hello = Hello(*range(14))
    for kind, answer in ((0, False), (1, True)):
        to, of = (0x105, 0x00A) if answer else (0x00A, 0x105)
        frame = build(Frame(Hello(*range(14), answer=answer) if answer else hello, dst_node=to,
                            src_node=of, stream=3))
        assert ENDS.header(kind) == frame[14:21] + bytes([frame[21] & 15])


def test_nothing_can_be_changed():
    """Another bit of any input is another proof, of both kinds; and they are not alike."""
    rng = random.Random(seed())
    proofs = {OPENING.proof(KEY, HELLO_ACK), OPENING.proof(KEY, HELLO_DONE)}
    count = 2

    def other(opening, key=KEY):
        nonlocal count
        proofs.update(opening.proof(key, kind) for kind in (HELLO_ACK, HELLO_DONE))
        count += 2

    def flipped(value):
        bit = rng.randrange(8 * len(value))
        return (int.from_bytes(value, "big") ^ 1 << bit).to_bytes(len(value), "big")

    fields = {name: getattr(OPENING, name) for name in (
        "hello", "answer", "opener_nonce", "answerer_nonce")}
    for name, value in fields.items():
        changed = set()
        while len(changed) < 10:
            changed.add(flipped(value))
        for new in changed:
            other(Opening(ENDS, **{**fields, name: new}))
    for ends in (Ends(0x104, 0x00A, 3), Ends(0x105, 0x00B, 3), Ends(0x105, 0x00A, 2),
                 Ends(0x00A, 0x105, 3)):
        other(Opening(ends, **fields))
    other(OPENING, key=flipped(KEY))
    assert len(proofs) == count


def test_tags_are_a_permutation():
    sbox = bytes(table())
    rng = random.Random(seed())
    for _ in range(3):
        key = rng.randbytes(4)
        made = [keyed.tags(key, sbox, n) for n in range(1 << 16)]
        assert len(set(made)) == 1 << 16
        # Neighbours are not neighbours.
        near = sum(abs(a - b) < 256 for a, b in zip(made, made[1:], strict=False))
        assert near < 3 * (1 << 16) // 128


def test_same():
    assert keyed.same(bytes(16), bytes(16)) and not keyed.same(bytes(16), bytes(15) + b"\1")


@pytest.mark.parametrize("make, message", [
    (lambda: Ends(0x1000, 0, 0), "opener must have 12 bits, not 0x1000"),
    (lambda: Ends(0, -1, 0), "answerer must have 12 bits, not -0x1"),
    (lambda: Ends(0, 0, 16), "stream must have 4 bits, not 0x10"),
    (lambda: keyed.mac(bytes(15), b""), "key must have 16 bytes, not 15"),
    (lambda: Opening(ENDS, HELLO[1:], ANSWER, bytes(8), bytes(8)),
     "hello must have 28 bytes, not 27"),
    (lambda: Opening(ENDS, HELLO, ANSWER, bytes(8), bytes(7)),
     "answerer_nonce must have 8 bytes, not 7"),
])
def test_wrong_arguments(make, message):
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        make()
