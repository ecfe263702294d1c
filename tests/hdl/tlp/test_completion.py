"""dxpu.tlp.completion: bit-exact completions for every request, at every width."""

import random

import pytest
from amaranth import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from dxpu.stream import WIDTHS, PacketSignature, connect
from dxpu.tlp.completion import CompletionBuilder, completion_for
from dxpu.tlp.parser import Parser
from dxpu.tlp.types import CompletionRequest, CompletionStatus, TlpInfo
from dxpu_model import tlp as golden
from tests.support.testbench import (
    Packet, check_stream, collect_packets, drive_packets, drive_words, seed, simulate,
)

NON_POSTED = ("MRd32", "MRd64", "MRdLk32", "MRdLk64", "IORd", "IOWr", "CfgRd0", "CfgWr0", "CfgRd1",
              "CfgWr1", "FetchAdd32", "FetchAdd64", "Swap32", "Swap64", "CAS32", "CAS64")
COMPLETER = 0x3B18


class Answer(wiring.Component):
    """Answers every TLP with ``status``."""

    def __init__(self, status):
        super().__init__({"i": In(PacketSignature(512)), "o": Out(PacketSignature(512))})
        self._status = status

    def elaborate(self, platform):
        m = Module()
        m.submodules.parser = parser = Parser(512)
        m.submodules.builder = builder = CompletionBuilder(512)
        connect(m, wiring.flipped(self.i), parser.i)
        connect(m, builder.o, wiring.flipped(self.o))
        m.d.comb += [
            builder.i.payload.eq(
                completion_for(parser.o.payload.meta, self._status, COMPLETER)),
            builder.i.valid.eq(parser.o.valid & parser.o.payload.last),
            parser.o.ready.eq(builder.i.ready | ~parser.o.payload.last),
        ]
        return m


def answer(requests, status):
    dut, got = Answer(status), []
    simulate(dut, drive_packets(dut.i, [Packet(r.pack()) for r in requests]),
             collect_packets(dut.o, len(requests), got))
    for request, packet in zip(requests, got, strict=True):
        assert packet.data.hex() == golden.complete(request, status, COMPLETER).pack().hex(), \
            request
    return [golden.classify(packet.data) for packet in got]


@pytest.mark.parametrize("status", list(CompletionStatus))
def test_answers_random_requests(status):
    rng = random.Random(seed())
    requests = [golden.random_tlp(rng, kinds=(kind,), max_payload=8)
                for kind in NON_POSTED for _ in range(12)]
    answer(requests, status)


def test_answers_every_byte_enable():
    """Byte count and lower address of all rows of the tables of 2.3.1.1, zero length included."""
    requests = []
    for address in (0x1000, 0x1074, 0x107C):
        requests += [golden.Tlp(0, 0, length=1, first_be=first, address=address)
                     for first in range(16)]
        requests += [golden.Tlp(0, 0, length=length, first_be=first, last_be=last, address=address)
                     for length in (2, 3, 32) for first in range(1, 16) for last in range(1, 16)]
    answer(requests, CompletionStatus.UR)


@pytest.mark.parametrize("length, first, last, address, count, lower", [
    (1024, 15, 15, 0x1000, 0, 0x00),
    (1024, 8, 1, 0x1000, 4090, 0x03),
    (1, 0, 0, 0x1004, 1, 0x04),
    (1, 0b1001, 0, 0x1004, 4, 0x04),
    (1, 0b0110, 0, 0x1004, 2, 0x05),
    (2, 0b1100, 0b0001, 0x107C, 3, 0x7E),
    (32, 15, 15, 0x1080, 128, 0x00),
])
def test_byte_counts_by_hand(length, first, last, address, count, lower):
    request = golden.Tlp(0, 0, length=length, first_be=first, last_be=last, address=address)
    info, = answer([request], CompletionStatus.UR)
    assert (info.byte_count, info.lower_address) == (count, lower)


def test_ur_of_a_locked_read_with_a_tag_of_10_bits():
    """The whole completion, written by hand from the drawing."""
    request = golden.Tlp(0, 1, length=1, first_be=15, address=0x1044, requester_id=0x0100,
                         tag=0x2A5, tc=5, attr=0b110)
    dut, got = Answer(CompletionStatus.UR), []
    simulate(dut, drive_packets(dut.i, [Packet(request.pack())]), collect_packets(dut.o, 1, got))
    assert got[0].data.hex() == "0bd42000" "3b182004" "0100a544"


@pytest.mark.parametrize("width", WIDTHS)
def test_builder(width):
    rng = random.Random(seed())
    dut = CompletionBuilder(width)
    requests, packets = [], []
    for _ in range(80):
        data = rng.choice([b"", rng.randbytes(4)])
        status = CompletionStatus(rng.choice([0, 1, 2, 4]))
        tlp = golden.random_tlp(rng, kinds=(rng.choice(["Cpl", "CplLk"]),))
        tlp.prefixes, tlp.digest, tlp.ep, tlp.bcm = (), None, 0, 0
        tlp.status, tlp.payload, tlp.length = status.value, data, len(data) // 4
        tlp.fmt = 2 if data else 0
        requests.append({
            "status": status, "completer_id": tlp.completer_id, "requester_id": tlp.requester_id,
            "tag": tlp.tag, "tc": tlp.tc, "attr": tlp.attr, "byte_count": tlp.byte_count & 0xFFF,
            "lower_address": tlp.lower_address, "has_data": bool(data),
            "data": int.from_bytes(data, "little"), "locked": tlp.type & 1,
        })
        packets.append(Packet(tlp.pack()))
    got = []
    simulate(dut, drive_words(dut.i, requests, rng=rng, density=0.7),
             collect_packets(dut.o, len(packets), got, rng=rng, density=0.7),
             background=[check_stream(dut.i), check_stream(dut.o)])
    assert [p.data.hex() for p in got] == [p.data.hex() for p in packets]


@pytest.mark.parametrize("width", WIDTHS)
def test_builder_is_one_beat_per_cycle(width):
    dut, got = CompletionBuilder(width), []
    simulate(dut, drive_words(dut.i, [{"has_data": n % 2} for n in range(20)]),
             collect_packets(dut.o, 20, got))
    beats = sum(-(-len(p.data) // (width // 8)) for p in got)
    assert got[-1].last_cycle - got[0].first_cycle == beats - 1


def test_arguments():
    with pytest.raises(ValueError, match="width must be one of 32, 64, 128, 256, 512, not 8"):
        CompletionBuilder(8)
    with pytest.raises(TypeError, match="info must be a view of TlpInfo, not "):
        completion_for(Signal(CompletionRequest), CompletionStatus.UR, 0)
    assert completion_for(Signal(TlpInfo), CompletionStatus.UR, 0).shape() is CompletionRequest


def test_posted_requests_have_no_completion():
    with pytest.raises(ValueError, match="MWr32 is not completed"):
        golden.complete(golden.Tlp(2, 0, length=1, payload=bytes(4)), CompletionStatus.UR, 0)
