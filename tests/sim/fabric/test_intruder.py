"""The bad neighbour of the Ethernet, and what it expects of the proxies."""

import random
from dataclasses import replace

import pytest

from dxpu.fabric.wire.format import node_mac
from dxpu_model.wire import Ack, Credit, Data, Fence, Frame, Hello, Sack, Tlps, build
from dxpu_sim.fabric.intruder import KINDS, LARGEST, Intruder, Peer, Target

READ = bytes.fromhex("00000001 0000010f 12345678")
ENTRIES = (Credit(0), Credit(1), Credit(2))


def targets():
    return [Target("host", 1, (Peer(0x101, 0, 7, ((1, 0), (2, 0))), Peer(0x102, 0, 9, ((1, 0),)))),
            Target("box0", 0x101, (Peer(1, 0, 11, ((0, 1), (0, 2))),))]


def frame(body, **fields):
    values = {"dst_node": 1, "src_node": 0x101, "src_slot": 1, "tag": 7}
    return Frame(body, **{**values, **fields})


def flip(data, bit):
    return data[:bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1:]


OLD = frame(Tlps((READ,)), seq=0xF0_0000)
HELLO = replace(Hello(*range(1, len(Hello.FIELDS) + 1)), security_mode=0)


@pytest.mark.parametrize("data, counters", [
    (build(OLD), {"link_stray": 1, "rx_refused": 0}),
    (build(replace(OLD, seq=0x1_0000)), {"link_stray": 1}),
    (build(replace(OLD, tag=9)), {"link_wrong_tag": 1}),
    (build(replace(OLD, tag=0)), {"link_wrong_tag": 1}),
    (build(replace(OLD, stream=1)), {"link_wrong_tag": 1}),
    (build(replace(OLD, stream=4)), {"link_no_session": 1}),
    (build(replace(OLD, src_node=0x103)), {"link_no_session": 1}),
    (build(replace(OLD, dst_node=0x101)), {"link_wrong_node": 1}),
    (build(frame(HELLO)), {"link_wrong_tag": 1}),
    # Its security mode promises nonces and a proof.
    (build(frame(replace(HELLO, security_mode=1))), {"link_wrong_tag": 1, "rx_length": 1}),
    (build(frame(replace(HELLO, security_mode=1, keyed=bytes(32)))), {"link_wrong_tag": 1}),
    # A frame that the link refuses, and that is damaged, counts twice.
    (flip(build(OLD), 8 * 42), {"link_stray": 1, "rx_record": 1}),
    (build(OLD)[:-1] + b"\1", {"link_stray": 1, "rx_padding": 1}),
    (build(OLD) + bytes(4), {"link_stray": 1, "rx_length": 1}),
    (build(OLD)[:40], {"link_stray": 1, "rx_record": 1}),
    (build(frame(Fence(0))), {"link_stray": 1}),
    (build(frame(Fence(0)))[:-1] + b"\1", {"link_stray": 1, "rx_padding": 1}),
    # A damaged header is nobody's.
    (flip(build(OLD), 8 * 22), {"rx_hcrc": 1}),
    (flip(build(OLD), 8 * 12), {"rx_ethertype": 1}),
    (flip(build(OLD), 8 * 14 + 7), {"rx_version": 1}),
    (build(frame(Data(0, bytes(8), 0))), {"rx_unhandled": 1}),
    (build(OLD).ljust(LARGEST + 4, b"\0"), {"mac0_rx_giant": 1}),
    (build(OLD).ljust(LARGEST, b"\0"), {"link_stray": 1, "rx_length": 1}),
    # Of what was sent before, and of what was never sent.
    (build(frame(Ack(ENTRIES), ack=0xFF_0000)), {"link_stray": 1}),
    (build(frame(Ack(ENTRIES), ack=0x12345)), {"link_stray": 1}),
    (build(frame(Sack(ENTRIES, ()), ack=0x12345)), {"link_stray": 1}),
], ids=lambda value: "-".join(value) or "none" if isinstance(value, dict) else "frame")
def test_verdicts_worked_out_by_hand(data, counters):
    host, _ = targets()
    host.judge(node_mac(0, 1) + data[6:])
    expected = {name if name.startswith("mac") else f"fabric_{name}": count
                for name, count in counters.items() if count}
    assert {k: v for k, v in host.expected.items() if v} == expected
    assert host.refused_bad == (sum(counters.values()) == 2)


def test_every_kind_of_frame_is_drawn_and_a_seed_repeats_them():
    def frames(seed):
        intruder = Intruder(random.Random(seed), targets())
        return [intruder.draw() for _ in range(1000)], intruder

    (first, intruder), (again, _), (other, _) = frames(1), frames(1), frames(2)
    assert first == again != other
    assert set(intruder.made) == set(KINDS)
    assert {data[:6] for data in first} == {node_mac(0, 1), node_mac(0, 0x101)}
    assert not any(len(data) % 4 for data in first)
