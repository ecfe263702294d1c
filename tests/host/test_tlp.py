"""TLPs of `dxpu_host`: split by the rules, and well formed to the golden model."""

import random

import pytest

from dxpu.tlp.types import Malformed
from dxpu_host.tlp import (
    Status, completed_bytes, completions, config_request, enabled_runs, memory_reads, memory_writes,
    requested_bytes,
)
from dxpu_model.tlp import Tlp, classify, complete, malformed, random_tlp


def places(rng):
    """Addresses near borders, above 4 GiB too; lengths of all kinds."""
    for _ in range(400):
        page = rng.choice([0, 0x1_0000_0000, 0xFFFF_F000]) + (rng.randrange(3) << 12)
        address = page + rng.choice([0, 1, 2, 3, 4, 127, 128, 4090, 4095, rng.randrange(4096)])
        yield address, rng.choice([1, 2, 3, 4, 5, 8, 127, 129, 4096, rng.randint(1, 9000)])


@pytest.mark.parametrize("most", [128, 256, 512, 4096])
def test_reads_ask_for_each_byte_once(most):
    for address, length in places(random.Random(most)):
        position = address
        for tlp in memory_reads(address, length, most, requester=0x100):
            assert malformed(tlp.pack()) is Malformed.NONE
            assert classify(tlp.pack()).header_dwords == (4 if tlp.address >> 32 else 3)
            start, count = requested_bytes(tlp)
            assert start == position and count <= most and tlp.requester_id == 0x100
            position += count
        assert position == address + length


@pytest.mark.parametrize("most", [128, 256, 512])
def test_writes_write_each_byte_once(most):
    rng = random.Random(most)
    for address, length in places(rng):
        data, got = rng.randbytes(length), b""
        for tlp in memory_writes(address, data, most):
            assert malformed(tlp.pack(), max_payload=most) is Malformed.NONE
            (start, part), = enabled_runs(tlp)
            assert start == address + len(got)
            got += part
        assert got == data


@pytest.mark.parametrize("most", [128, 256, 512])
def test_completions_of_reads(most):
    """Byte counts and lower addresses are those of the golden model; all but the last end at the
    Read Completion Boundary."""
    rng = random.Random(most)
    for address, length in places(rng):
        for request in memory_reads(address, length, 4096):
            request.tag, request.tc, request.attr = rng.randrange(256), rng.randrange(8), 3
            start, count = requested_bytes(request)
            data, got = rng.randbytes(count), b""
            parts = [Tlp.unpack(raw) for raw in completions(request, data, most)]
            first = complete(request, Status.SC, 0, bytes(4))
            assert (parts[0].byte_count, parts[0].lower_address) == (
                first.byte_count, first.lower_address)
            for part in parts:
                assert malformed(part.pack(), max_payload=most) is Malformed.NONE
                assert (part.tag, part.tc, part.attr) == (request.tag, request.tc, 3)
                assert part.byte_count == count - len(got)
                assert part.lower_address == (start + len(got)) & 0x7F
                got += completed_bytes(part)
                assert got == data[:len(got)]
                assert part is parts[-1] or (start + len(got)) % 64 == 0
            assert got == data


def test_completions_of_random_reads_that_succeed_or_not():
    rng = random.Random(1)
    for _ in range(500):
        request = random_tlp(rng, kinds=("MRd32", "MRd64"))
        request.th = 0
        if malformed(request.pack()) is not Malformed.NONE:
            continue
        _, count = requested_bytes(request)
        data = rng.randbytes(count)
        parts = [Tlp.unpack(raw) for raw in completions(request, data, 256)]
        assert b"".join(completed_bytes(part) for part in parts) == data
        refusal, = completions(request, None, 256, completer=0x10)
        assert refusal == complete(request, Status.UR, 0x10).pack()
    with pytest.raises(ValueError, match="data must be 4 bytes, not 3"):
        list(completions(next(memory_reads(0, 4, 128)), bytes(3), 128))


def test_writes_with_holes():
    tlp, = memory_writes(0x1000, bytes(range(8)), 128)
    tlp.first_be, tlp.last_be = 0b0101, 0b1010
    assert list(enabled_runs(tlp)) == [
        (0x1000, b"\0"), (0x1002, b"\x02"), (0x1005, b"\x05"), (0x1007, b"\x07")]
    tlp.first_be, tlp.last_be = 0b1100, 0b0011
    assert list(enabled_runs(tlp)) == [(0x1002, bytes(range(2, 6)))]


@pytest.mark.parametrize("register, size, enables", [(0, 4, 15), (0x42, 2, 12), (0x43, 1, 8),
                                                     (0xFFC, 4, 15)])
def test_configuration(register, size, enables):
    for forward in (False, True):
        read = config_request(0x0208, register, None, size=size, forward=forward)
        write = config_request(0x0208, register, 0x12, size=size, forward=forward)
        for tlp, kind in ((read, "Rd"), (write, "Wr")):
            assert tlp.kind == f"Cfg{kind}{forward:d}" and tlp.first_be == enables
            assert malformed(tlp.pack()) is Malformed.NONE
            info = classify(tlp.pack())
            assert (info.target_id, info.register) == (0x0208, register >> 2)
        assert write.payload[register & 3] == 0x12


@pytest.mark.parametrize("register, size", [(1, 2), (2, 4), (4096, 1), (-4, 4), (0, 3)])
def test_configuration_takes_aligned_registers(register, size):
    with pytest.raises(ValueError, match="register must be an aligned offset"):
        config_request(0, register, None, size=size)
