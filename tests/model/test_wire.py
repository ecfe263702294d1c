"""dxpu_model.wire: the check vectors of the wire contract, and building against parsing."""

import random

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dxpu.fabric.wire import format as fmt
from dxpu.fabric.wire.format import DropCause
from dxpu.fabric.wire.frame_types import Body, End, FrameType, Numbering
from dxpu_model import wire
from dxpu_model.crc import crc16_ccitt_false, crc32c, fcs
from dxpu_model.wire import (
    BODIES, Ack, Credit, Data, Frame, FrameError, Hdr, Joiner, Mgmt, Sack, Tlps, build, parse,
    reseal, split, tlp_length,
)
from dxpu_model.wire_random import hello
from dxpu_model.wire_vectors import MISTAKES, UPDATE, VECTORS, read
from tests.support.testbench import seed


@pytest.mark.parametrize("name", VECTORS)
def test_check_vectors(name):
    frame, hexadecimal = VECTORS[name]
    data = bytes.fromhex(hexadecimal)
    assert build(frame, with_fcs=True).hex() == hexadecimal
    assert parse(data, with_fcs=True) == frame
    assert build(frame) == data[:-4]


def test_published_crc_check_values():
    assert crc16_ccitt_false(b"123456789") == 0x29B1
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"6789", crc32c(b"12345")) == 0xE3069283
    assert fcs(b"123456789") == bytes.fromhex("2639f4cb")
    assert crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720, B.4


def test_read_with_credit_update_is_64_bytes():
    assert len(build(VECTORS["V1"][0], with_fcs=True)) == 64
    assert len(build(VECTORS["V5"][0], with_fcs=True)) == 64


# Random frames ------------------------------------------------------------------------------------

def u(bits):
    return st.integers(0, (1 << bits) - 1)


@st.composite
def tlps(draw, largest=64):
    """Any TLP that has a length: prefixes, all Fmt, digest; the rest is noise."""
    prefixes = b"".join(bytes([0x80 | draw(u(5))]) + draw(st.binary(min_size=3, max_size=3))
                        for _ in range(draw(st.sampled_from([0, 0, 0, 1, 4]))))
    form, td, noise = draw(u(2)), draw(u(1)), draw(st.binary(min_size=16, max_size=16))
    length = draw(st.sampled_from([1, 2, 3, 4, 5, 8, 31, 32]) | st.integers(1, largest))
    head = bytes([form << 5 | noise[0] & 31, noise[1],
                  td << 7 | noise[2] & 0x7C | length >> 8 & 3, length & 255])
    head += noise[4:16 if form & 1 else 12]
    rng = random.Random(draw(u(32)))
    return prefixes + head + rng.randbytes(4 * (length if form & 2 else 0) + 4 * td)


credits = st.builds(Credit, st.integers(0, 2), u(8), u(16), u(16), u(16))
entries = st.tuples(*(st.builds(Credit, st.just(n), u(8), u(16), u(16), u(16)) for n in range(3)))
small_tlps = tlps()


@st.composite
def bodies(draw):
    kind = draw(st.sampled_from([*FrameType, FrameType.TLP, FrameType.TLP]))
    if kind == FrameType.TLP:
        return Tlps(tuple(draw(st.lists(small_tlps, min_size=1, max_size=31))))
    if kind == FrameType.HDR:
        return split(draw(small_tlps), 64)[0]
    if kind == FrameType.DATA:
        return Data(4 * draw(u(14)), 4 * draw(st.binary(min_size=1, max_size=16)), draw(u(32)))
    if kind == FrameType.ACK:
        return Ack(draw(entries))
    if kind == FrameType.SACK:
        return Sack(draw(entries), tuple(draw(st.lists(u(64), max_size=1))))
    if kind.body.end == End.FRAME:
        return Mgmt(draw(st.binary(min_size=28, max_size=80)))
    if kind.body in (Body.HELLO, Body.KEYED):
        return hello(random.Random(draw(u(32))), kind)
    return BODIES[kind](**{name.replace(" ", "_"): draw(u(8 * size))
                           for name, size in kind.body.fields if name != "zero"})


@st.composite
def frames(draw, body=None):
    body = draw(bodies()) if body is None else draw(body)
    hello = body.kind.numbering == Numbering.NONE
    mac = st.none() | st.binary(min_size=6, max_size=6).filter(lambda m: m[:3] != fmt.MAC_PREFIX)
    return Frame(body, draw(u(12)), draw(u(12)), draw(u(8)), draw(u(8)), draw(u(4)), draw(u(4)),
                 draw(u(16)), 0 if hello else draw(u(24)), 0 if hello else draw(u(24)),
                 draw(st.booleans()), draw(st.none() | credits), draw(mac), draw(mac))


@hypothesis.seed(seed())
@given(frames())
@settings(max_examples=300, deadline=None, database=None)
def test_parse_gives_back_what_build_took(frame):
    data = build(frame, with_fcs=True)
    got = parse(data, with_fcs=True)
    assert got == frame
    assert len(data) % 4 == 0 or isinstance(frame.body, Mgmt | Data)
    assert build(got, with_fcs=True) == data


@hypothesis.seed(seed())
@given(frames(), u(32))
@settings(max_examples=200, deadline=None, database=None)
def test_one_flipped_bit_is_always_noticed(frame, where):
    """By the FCS alone, and without it by all but the MAC addresses (and MGMT's own layer)."""
    data = bytearray(build(frame, with_fcs=True))
    where %= len(data) * 8
    data[where // 8] ^= 1 << where % 8
    with pytest.raises(FrameError) as error:
        parse(bytes(data), with_fcs=True)
    assert error.value.cause == DropCause.FCS
    inside = 12 * 8 <= where < (len(data) - 4) * 8
    if inside and not isinstance(frame.body, Mgmt | Data):
        with pytest.raises(FrameError):
            parse(bytes(data[:-4]))


@hypothesis.seed(seed())
@given(st.binary(max_size=200) | frames().map(build), u(32), st.booleans())
@settings(max_examples=300, deadline=None, database=None)
def test_any_bytes_parse_or_raise_frame_error(data, noise, seal):
    rng = random.Random(noise)
    data = bytearray(data)
    for _ in range(rng.choice([0, 1, 1, 2, 8])):
        if data:
            data[rng.randrange(len(data))] = rng.randrange(256)
    data = bytes(data[:rng.choice([len(data), rng.randrange(len(data) + 1)])])
    data += bytes(rng.choice([0, 0, 4, 60]))
    if seal and len(data) >= 40:
        data = reseal(data)
    try:
        frame = parse(data)
    except FrameError as error:
        assert isinstance(error.cause, DropCause)
    else:
        assert build(frame) == data


# One mistake each ---------------------------------------------------------------------------------

@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_has_its_cause(name):
    data, cause = MISTAKES[name]
    with pytest.raises(FrameError) as error:
        parse(data)
    assert error.value.cause == cause


def test_length_zero_is_1024_dwords():
    tlp = bytes([0x60, 0, 0x80, 0]) + bytes(12 + 4096 + 4)
    assert tlp_length(tlp) == len(tlp)
    assert parse(build(Frame(Tlps((tlp, tlp))))).body.tlps == (tlp, tlp)


def test_records_of_a_shared_frame_are_padded_and_a_single_one_is_not():
    one = read(0x1000, 1, 1)  # 12 + 4 bytes
    two = read(0x1_0000_0000, 1, 1)  # 16 + 4 bytes
    assert len(build(Frame(Tlps((two,), ), credit=UPDATE))) == 60
    assert len(build(Frame(Tlps((one, two, two))))) == 32 + 16 + 24 + 24
    write = bytes([0x60, 0, 0, 4]) + bytes(12 + 16)
    assert len(build(Frame(Tlps((write,))))) == 32 + 36
    assert len(build(Frame(Tlps((write, write))))) == 32 + 40 + 40


# Split form ---------------------------------------------------------------------------------------

@hypothesis.seed(seed())
@given(small_tlps, st.sampled_from([4, 8, 64, 256, 4096]), u(16), u(24))
@settings(max_examples=200, deadline=None, database=None)
def test_split_form_joins_again(tlp, largest, tag, seq):
    joiner, bodies = Joiner(), split(tlp, largest)
    for n, body in enumerate(bodies):
        frame = Frame(body, tag=tag, seq=(seq + n) % 2**24)
        got = joiner.take(parse(build(frame)).body)
        assert got == (tlp if n == len(bodies) - 1 else None)


def test_split_form_of_the_smallest():
    assert len(split(read(0x1000, 1, 1), 64)) == 1
    digest = bytes([0, 0, 0x80, 1]) + bytes(8) + b"ECRC"
    assert split(digest, 64)[1:] == [Data(0, b"ECRC", crc32c(digest))]
    with pytest.raises(ValueError, match="largest must be a positive multiple of 4, not 6"):
        split(digest, 6)


def test_joiner_refuses_what_does_not_continue():
    tlp = bytes([0x40, 0, 0, 8]) + bytes(range(8)) + bytes(range(32))
    header, first, second = split(tlp, 16)
    joiner = Joiner()
    with pytest.raises(FrameError, match="LENGTH"):
        joiner.take(first)
    joiner.take(header)
    for bad in (header, second, Data(0, first.data, first.crc ^ 1), Data(0, b"", 0),
                Data(0, bytes(36), crc32c(tlp[:12] + bytes(36)))):
        with pytest.raises(FrameError):
            joiner.take(bad)
    assert joiner.take(first) is None
    assert joiner.take(second) == tlp


def test_hdr_alone_holds_prefixes():
    prefixed = bytes([0x90, 1, 2, 3]) + read(0x1000, 1, 1)
    assert split(prefixed, 64) == [Hdr(prefixed)]
    assert parse(build(Frame(Hdr(prefixed)))).body == Hdr(prefixed)


def test_module_knows_every_type():
    assert set(wire.BODIES) == set(FrameType)
    assert set(wire.__all__) <= set(dir(wire))
