"""dxpu.fabric.send.tx_queue: TLPs with their CRC, and room for all that are on their way."""

import random

import pytest

from dxpu.fabric.send import tx_queue
from dxpu.fabric.send.tx_queue import LARGEST_RECORD, TxQueue, reserve
from dxpu.stream import WIDTHS
from dxpu_model.crc import crc32c
from tests.support.testbench import (
    Packet, check_stream, collect_packets, collect_words, drive_packets, seed, simulate,
)


def is_filled(width, most):
    """TLPs of up to so many dwords come without a pause, and leave so slowly that the queue is
    always full; checks what leaves."""
    rng = random.Random(seed())
    depth = 1 << (LARGEST_RECORD // (width // 32) + reserve(width)).bit_length()
    dut = TxQueue(width, depth=depth, tlps=depth)
    beats, sent = 0, []
    while beats < 2 * depth:
        size = rng.randint(1, most)
        beats += size * 32 // width + 1
        sent.append(Packet(rng.randbytes(4 * size), discard=rng.random() < 0.1,
                           meta=dict(row=rng.randrange(64), life=len(sent) & 255)))
    whole = [packet for packet in sent if not packet.discard]
    got, descriptors = [], []
    simulate(dut, collect_packets(dut.o, len(whole), got, rng=rng, density=0.4),
             collect_words(dut.descriptors, len(whole), descriptors),
             background=[drive_packets(dut.i, sent), check_stream(dut.o)])
    assert [packet.data for packet in got] == [
        packet.data + crc32c(packet.data).to_bytes(4, "little") for packet in whole]
    assert [(d.row, d.life, d.pairs) for d in descriptors] == [
        (packet.meta["row"], packet.meta["life"], (len(packet.data) // 4 + 2) // 2)
        for packet in whole]


@pytest.mark.parametrize("width, beats", [*((width, 4) for width in WIDTHS), (128, 1), (512, 12)])
def test_nothing_is_lost_where_it_is_full(width, beats):
    is_filled(width, beats * width // 32)


def test_too_little_room_is_found(monkeypatch):
    monkeypatch.setattr(tx_queue, "reserve", lambda width: 0)
    with pytest.raises((AssertionError, TimeoutError)):
        is_filled(256, 32)
