"""The parts of the GPU model and of the library adapter that need no simulation."""

import random

import pytest
from cocotbext.pcie.core.tlp import Tlp, TlpType
from cocotbext.pcie.core.utils import PcieId
from dxpu_sim.endpoint.gpu import Command, SparseMemory
from dxpu_sim.pcie.tlps import (
    completion_length, describe, enabled_bytes, pack, request_bytes, unpack,
)
from tests.support.raw_tlps import completion, config, memory, message
from tests.support.testbench import seed


def test_sparse_memory_against_bytearray():
    rng = random.Random(seed())
    memory, model = SparseMemory(1 << 16), bytearray(1 << 16)
    for _ in range(300):
        address = rng.randrange(1 << 16)
        length = rng.randrange(min(10_000, (1 << 16) - address) + 1)
        if rng.random() < 0.5:
            data = rng.randbytes(length)
            memory.write(address, data)
            model[address:address + length] = data
        assert memory.read(address, length) == model[address:address + length]


@pytest.mark.parametrize("address, length", [(-1, 1), (0, 4097), (4096, 1), (0, -1)])
def test_sparse_memory_bounds(address, length):
    with pytest.raises(IndexError):
        SparseMemory(4096).read(address, length)


def test_command():
    command = Command(1, 0x301, 0x1_2345_6780, 0x9_8765_4320, 65536, 42)
    assert len(command.pack()) == Command.SIZE and Command.unpack(command.pack()) == command
    assert command.pack()[8:16] == bytes.fromhex("8067452301000000")


@pytest.mark.parametrize("address, length", [
    (a, n) for a in range(0x1f8, 0x1fe) for n in (1, 2, 3, 4, 5, 7, 8, 9, 128)])
def test_request_bytes(address, length):
    tlp = Tlp()
    tlp.set_addr_be(address, length)
    assert request_bytes(tlp) == (length, address & 0x7f)


def test_zero_length_read():
    tlp = Tlp()
    tlp.address, tlp.length, tlp.first_be, tlp.last_be = 0x44, 1, 0, 0
    assert request_bytes(tlp) == (1, 0x44)


def test_enabled_bytes():
    rng = random.Random(seed())
    for _ in range(500):
        tlp = Tlp()
        tlp.address = 0x100
        tlp.set_data(rng.randbytes(4 * rng.randrange(1, 5)))
        tlp.first_be, tlp.last_be = rng.randrange(16), rng.randrange(16)
        enables = [tlp.first_be] + [15] * (tlp.length - 2) + [tlp.last_be] * (tlp.length > 1)
        expected = {0x100 + 4 * d + b: tlp.data[4 * d + b]
                    for d, e in enumerate(enables) for b in range(4) if e >> b & 1}
        got = {a + n: byte for a, data in enabled_bytes(tlp) for n, byte in enumerate(data)}
        assert got == expected


@pytest.mark.parametrize("raw", [
    memory(0x1000, 32), memory(0x1_0000_1000, 1024), memory(0x1000, data=bytes(range(8)), first=14),
    memory(0x1000, kind=2), memory(0x1000, data=bytes(8), kind=0x0d), memory(0x1000, 2, kind=1),
    config(0, 0x0300, 0x10), config(1, 0x03f9, 0xffc, value=0x12345678),
    completion(bytes(64), count=128, lower=0x40), completion(status=1, count=4),
    message(0, 0x20), message(2, 0x7f, target=0x1234), message(5, 0x1b),
    b"\x74\0\0\1" + b"\1\0\0\x50" + bytes(range(8)) + b"\x19\0\0\0"])
def test_pack_is_the_inverse_of_unpack(raw):
    assert pack(unpack(raw)) == raw


def test_unpack_message():
    tlp = unpack(message(2, 0x7f, requester=0x0108, target=0x1234))
    assert tlp.fmt_type == TlpType.MSG_ID and tlp.requester_id == PcieId(1, 1, 0)
    assert int(tlp.completer_id) == 0x1234
    assert not tlp.length and tlp.check()


@pytest.mark.parametrize("raw, carried", [
    (completion(bytes(64), count=128), 64), (completion(bytes(8), count=5, lower=3), 5),
    (completion(bytes(8), count=20, lower=3), 5), (completion(status=1, count=20), 0)])
def test_completion_length(raw, carried):
    assert completion_length(unpack(raw)) == carried


@pytest.mark.parametrize("raw, text", [
    (memory(0x1000, 32, tag=7), "mem read 0x1000, 32 DW by 01:00.0 tag 7"),
    (config(1, 0x0300, 0x2c), "cfg read 1 03:00.0 register 0x02c by 00:00.0 tag 1"),
    (message(0, 0x20), "msg to rc code 0x20 by 01:00.0 tag 0"),
    (completion(status=1, count=4), "cpl UR to 01:00.0 tag 1 from 03:00.0, 4 bytes left")])
def test_describe(raw, text):
    assert describe(unpack(raw)) == text


@pytest.mark.parametrize("wrong, text", [
    ({"tags": 0}, "tags must be 1 to 256, not 0"), ({"tags": 257}, "tags must be 1 to 256"),
    ({"read_size": 100}, "read_size must be a power of two from 4 to 4096, not 100"),
    ({"vram_bytes": 3 << 20}, "vram_bytes must be a power of two of at least 1 MiB")])
def test_wrong_parameters(wrong, text):
    from dxpu_sim.endpoint.gpu import Gpu
    with pytest.raises(ValueError, match=text):
        Gpu(**wrong)
