"""dxpu_model.tlp: the reference itself, against the tables of the specification."""

import random

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dxpu.tlp.types import Malformed, Routing, TlpClass
from dxpu_model import tlp as golden
from tests.support.testbench import seed


#: TLPs written by hand from the rules of 2.2 and 2.3, and what is wrong with them at any port.
RULES = [
    ("00000001000000 0f 00001000", Malformed.NONE),
    ("00000001000000 00 00001000", Malformed.NONE),           # read of zero length
    ("00000001000000 1f 00001000", Malformed.BYTE_ENABLE),    # last enables of one dword
    ("00000002000000 0f 00001000", Malformed.BYTE_ENABLE),    # no last enables of two
    ("00000002000000 59 00001000", Malformed.NONE),           # gaps within a QW
    ("00000002000000 59 00001004", Malformed.BYTE_ENABLE),    # gaps across QWs
    ("00000002000000 f0 00001000", Malformed.BYTE_ENABLE),
    ("00000003000000 7e 00001000", Malformed.NONE),
    ("00000003000000 7a 00001000", Malformed.BYTE_ENABLE),
    ("00010003000000 00 00001001", Malformed.NONE),           # a steering tag, no byte enables
    ("00000002000000 ff 00001ffc", Malformed.BOUNDARY),
    ("00000000000000 ff 00001000", Malformed.NONE),           # exactly 4 KiB
    ("00000000000000 ff 00001004", Malformed.BOUNDARY),
    # Of a translation request the low 12 bits of the address are reserved (10.2.2).
    ("00000404000000 ff 00001ff8", Malformed.NONE),
    ("00000804000000 ff 00001ff8", Malformed.BOUNDARY),
    ("40000404000000 ff 00001ff8" + "00" * 16, Malformed.BOUNDARY),
    ("4c000001000000 00 00001004 00000000", Malformed.NONE),
    ("4e000008000000 00 00001010" + "00" * 32, Malformed.NONE),
    # CAS at the end of a page: Length counts two operands, the access is one (2.2.7.1).
    ("4e000002 03000000 80001ffc" + "00" * 8, Malformed.NONE),
    ("4e000004 03000000 80001ff8" + "00" * 16, Malformed.NONE),
    ("4e000008 03000000 80001ff0" + "00" * 32, Malformed.NONE),
    ("6e000002 03000000 00000001 80001ffc" + "00" * 8, Malformed.NONE),
    ("6e000004 03000000 00000001 80001ff8" + "00" * 16, Malformed.NONE),
    ("6e000008 03000000 00000001 80001ff0" + "00" * 32, Malformed.NONE),
    ("4c000002 03000000 80001ff8" + "00" * 8, Malformed.NONE),
    ("4d000002 03000000 80001ff8" + "00" * 8, Malformed.NONE),
    # Non-posted requests have up to 32 bytes of data: those of the largest CAS.
    ("4c000009 03000000 80001000" + "00" * 36, Malformed.ATOMIC),
    ("02000001000000 0f 00001000", Malformed.NONE),
    ("02000002000000 0f 00001000", Malformed.FIXED),
    ("04100001000000 0f 01000000", Malformed.FIXED),
    ("04000401000000 0f 01000000", Malformed.FIXED),
    ("04001001000000 0f 01000000", Malformed.FIXED),          # Attr[0]
    ("04002001000000 0f 01000000", Malformed.FIXED),          # Attr[1]
    ("02002001000000 0f 00001000", Malformed.FIXED),
    # Attr[2], TH and LN are reserved there, and reserved bits are not checked (2.2.7.1, 2.3).
    ("05040001 0008000f 03000000", Malformed.NONE),
    ("45040001 0008000f 03000000 00000000", Malformed.NONE),
    ("02040001 0008000f 00001000", Malformed.NONE),
    ("05030001 0008000f 0300f003", Malformed.NONE),
    ("04000001000000 ff 01000000", Malformed.BYTE_ENABLE),
    ("34000000000000 20 0000000000000000", Malformed.NONE),
    ("34100000000000 20 0000000000000000", Malformed.TRAFFIC_CLASS),
    ("34100000000000 7f 0000000000000000", Malformed.NONE),
    ("34100000 03000012 0000000000000000", Malformed.NONE),   # OBFF, not implemented: UR
    ("34100000 03000052 0000000000000000", Malformed.NONE),   # PTM Request
    ("74100001 03000053 0000000000000000 00000000", Malformed.NONE),
    ("36100000000000 7f 0000000000000000", Malformed.NONE),   # reserved routing: ends here
    ("1b000001000000 0f 01000000", Malformed.FORMAT),
    ("01000001000000 0f 00001000", Malformed.NONE),
    ("41000001000000 0f 00001000 00000000", Malformed.FORMAT),
    ("40008001000000 0f 00001000 00000000", Malformed.LENGTH),
    ("40008001000000 0f 00001000 00000000 00000000", Malformed.NONE),
    ("91000000 00000001000000 0f 00001000", Malformed.NONE),
    ("91000000" * 4 + "00000001000000 0f 00001000", Malformed.NONE),
    ("91000000" * 5 + "00000001000000 0f 00001000", Malformed.PREFIX),
    # Local prefixes: MR-IOV, a reserved type, vendor's; alone, before, among and behind others.
    ("80000000 40000001 0000000f 00001000 00000000", Malformed.PREFIX),
    ("85000000 40000001 0000000f 00001000 00000000", Malformed.PREFIX),
    ("8eaabbcc 40000001 0000000f 00001000 00000000", Malformed.PREFIX),
    ("8f000000 40000001 0000000f 00001000 00000000", Malformed.PREFIX),
    ("80000000" * 2 + "00000001000000 0f 00001000", Malformed.PREFIX),
    ("8e000000" + "91000000" * 3 + "00000001000000 0f 00001000", Malformed.PREFIX),
    ("8e000000" + "91000000" * 4 + "00000001000000 0f 00001000", Malformed.PREFIX),
    ("91000000 80000000 91000000 00000001000000 0f 00001000", Malformed.PREFIX),
    ("91000000" * 3 + "80000000 00000001000000 0f 00001000", Malformed.PREFIX),
    ("91000000" * 4 + "80000000 00000001000000 0f 00001000", Malformed.PREFIX),
    ("00000001000000 0f", Malformed.TRUNCATED),
    ("91000000", Malformed.TRUNCATED),
]

#: TLPs that are malformed for one side only, and what they are at a port and for a completer.
SIDES = [
    # Operand size and alignment of AtomicOps are the completer's to check (2.2.7.1).
    ("4c000002000000 00 00001004 0000000000000000", Malformed.NONE, Malformed.ATOMIC),
    ("4c000003000000 00 00001000" + "00" * 12, Malformed.NONE, Malformed.ATOMIC),
    ("4e000008000000 00 00001008" + "00" * 32, Malformed.NONE, Malformed.ATOMIC),
    ("4c000002 03000000 80001ffc" + "00" * 8, Malformed.NONE, Malformed.ATOMIC),
    # A switch implements LTR, so it checks the traffic class (2.2.8.8); a GPU receives none.
    ("34100000 03000010 0000000000000000", Malformed.TRAFFIC_CLASS, Malformed.NONE),
]


@pytest.mark.parametrize("raw, cause", RULES)
def test_rules(raw, cause):
    for completer in (False, True):
        assert golden.malformed(bytes.fromhex(raw), completer=completer) is cause


@pytest.mark.parametrize("raw, at_port, at_completer", SIDES)
def test_rules_of_one_side(raw, at_port, at_completer):
    assert golden.malformed(bytes.fromhex(raw)) is at_port
    assert golden.malformed(bytes.fromhex(raw), completer=True) is at_completer


def test_classes_and_routing_of_the_kinds():
    """Tables of 2.2.1, 2.2.8 and 2.4."""
    def kind(name, **fields):
        fmt, type = golden.KINDS[name]
        info = golden.classify(golden.Tlp(fmt, type, **fields).pack())
        return info.cls, info.routing

    P, NP, CPL = TlpClass
    for name in golden.KINDS:
        if name.startswith("MWr"):
            expected = P, Routing.ADDRESS
        elif name.startswith("Msg"):
            expected = P, Routing.TO_ROOT
        elif name.startswith("Cpl"):
            expected = CPL, Routing.ID
        elif name.startswith("Cfg"):
            expected = NP, Routing.ID
        else:
            expected = NP, Routing.ADDRESS
        assert kind(name) == expected, name


@hypothesis.seed(seed())
@settings(max_examples=300, deadline=None, database=None)
@given(st.randoms(use_true_random=False))
def test_packs_what_it_unpacks(rng):
    tlp = golden.random_tlp(rng)
    raw = tlp.pack()
    again = golden.Tlp.unpack(raw)
    assert again.pack() == raw
    assert again.kind == tlp.kind != "reserved"
    assert (again.payload, again.prefixes, again.digest) == (tlp.payload, tlp.prefixes, tlp.digest)


@pytest.mark.parametrize("kind, count", [("MWr32", 3), ("Cpl", 3), ("MsgD", 4), ("CAS64", 4)])
def test_sizes(kind, count):
    fmt, type = golden.KINDS[kind]
    length = 4 if fmt & 2 else 0
    raw = golden.Tlp(fmt, type, length=length, payload=bytes(4 * length), digest=b"ecrc",
                     prefixes=(b"\x90abc", b"\x91abc")).pack()
    info = golden.classify(raw)
    assert (info.prefix_dwords, info.header_dwords, info.payload_dwords, info.digest) == \
        (2, count, length, 1)
    assert 4 * info.dwords == len(raw)


@pytest.mark.parametrize("raw, message", [
    ("000000010000000f", "TLP ends within its header"),
    ("91000000", "TLP ends within its header"),
    ("1b000001000000000000000000", "Fmt 000 with Type 11011 is reserved"),
    ("40000001000000000000100000", "TLP ends within its payload"),
])
def test_unpack_refuses(raw, message):
    with pytest.raises(ValueError, match=message):
        golden.Tlp.unpack(bytes.fromhex(raw))


def test_random_tlps_are_well_formed_and_cover_every_kind():
    rng = random.Random(seed())
    seen = set()
    for _ in range(2000):
        tlp = golden.random_tlp(rng)
        assert golden.malformed(tlp.pack()) is Malformed.NONE
        seen.add(tlp.kind)
    assert seen == set(golden.KINDS)
