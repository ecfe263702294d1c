"""Frames of a bad neighbour in the Ethernet, with the expected reaction of a proxy to each.

Expectations follow from the wire format (:mod:`dxpu_model.wire`) and from the state of the
sessions, not from the behaviour of a proxy.
"""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from dxpu.ethernet.receive import MAX_FRAME
from dxpu.fabric.wire.format import MIN_FRAME_BYTES, DropCause, node_mac
from dxpu.fabric.wire.frame_types import SESSIONLESS, FrameType
from dxpu_model import wire_random
from dxpu_model.receiver import judge
from dxpu_model.wire import Ack, Credit, Fence, Frame, Sack, Tlps, build, reseal

__all__ = ["KINDS", "LARGEST", "Intruder", "Peer", "Target"]

#: Largest frame that the MAC of a proxy accepts, in bytes without FCS.
LARGEST = MAX_FRAME
MODULUS = 1 << 24
#: Sessions of a proxy with each of its peers, open or not.
STREAMS = 4


@dataclass(frozen=True)
class Peer:
    """A session of a proxy: the peer's node, the stream, the tag in frames of the peer, and bound
    pairs of slots (there, here).
    """

    node: int
    stream: int
    tag: int
    slots: tuple[tuple[int, int], ...]


@dataclass
class Target:
    """A proxy under attack.

    Attributes
    ----------
    expected : Counter
        Expected increments of counters.
    refused_bad : int
        Frames that are refused by the link and also malformed; counted by the cause of the latter.
    """

    name: str
    node: int
    peers: tuple[Peer, ...]
    expected: Counter = field(default_factory=Counter)
    refused_bad: int = 0

    def judge(self, data: bytes) -> None:
        """Count the expected fate of the frame ``data``, which has no FCS yet."""
        if len(data) > LARGEST:
            self.expected["mac0_rx_giant"] += 1
            return
        data = data.ljust(MIN_FRAME_BYTES, b"\0")  # padding by the MAC of the sender
        verdict, link = judge(data), None
        cause = verdict if isinstance(verdict, DropCause) else None
        if cause is None or cause > DropCause.FIELD and cause != DropCause.UNHANDLED:
            link = self._link(data)
        if link:
            self.expected[link] += 1
        if cause is not None:
            self.expected[f"fabric_rx_{cause.name.lower()}"] += 1
            self.refused_bad += link is not None

    def _link(self, data):
        """Link counter for the reason of a refusal of a frame with this header; None if
        accepted."""
        def number(start, size):
            return int.from_bytes(data[start:start + size], "big")

        kind, nodes = FrameType(data[14] & 15), number(16, 3)
        if nodes >> 12 != self.node:
            return "fabric_link_wrong_node"
        node, stream = nodes & 0xFFF, data[21] & 15
        if node not in {p.node for p in self.peers} or stream >= STREAMS:
            return "fabric_link_no_session"
        peer = next((p for p in self.peers if (p.node, p.stream) == (node, stream)), None)
        if peer is None or kind in SESSIONLESS or number(22, 2) != peer.tag:
            return "fabric_link_wrong_tag"
        return "fabric_link_stray"  # the numbers made here are far from those of the session


class Intruder:
    """Makes frames for ``targets``; the target with the frame's address judges the frame."""

    def __init__(self, rng: random.Random, targets: list[Target]):
        self._rng, self._targets = rng, targets
        self._nodes = {t.node for t in targets} | {p.node for t in targets for p in t.peers}
        #: Number of frames made, by kind.
        self.made: Counter = Counter()

    def draw(self) -> bytes:
        """A frame of a random kind, without FCS; a whole number of dwords."""
        # Giant frames would take most of the time.
        name = self._rng.choices(list(KINDS), [0.1 if k == "giant" else 1 for k in KINDS])[0]
        target = self._rng.choice(self._targets)
        data = KINDS[name](self, target)
        # At least both addresses: a shorter frame would go to all proxies.
        data = (node_mac(0, target.node) + data[6:]).ljust(12, b"\0")
        data = data[:len(data) & ~3]
        target.judge(data)
        self.made[name] += 1
        return data

    # Numbers that no frame on its way can have: 65,536 or more before or behind.

    def _behind(self):
        return MODULUS - self._rng.randint(1 << 16, 1 << 22)

    def _ahead(self):
        return self._rng.randint(1 << 16, 1 << 22)

    def _far(self):
        return self._rng.choice([self._behind, self._ahead])()

    def frame(self, target, kinds="any", *, make=None, **fields):
        """A valid frame of a peer of ``target``, with the right tag, and numbers far behind."""
        rng, peer = self._rng, self._rng.choice(target.peers)
        there, here = rng.choice(peer.slots)
        values = {"src_node": peer.node, "dst_node": target.node, "dst_slot": here,
                  "src_slot": there, "path": 0, "stream": peer.stream, "tag": peer.tag,
                  "ack": self._far(), "credit": rng.choice([None, self.credit()])}
        values |= fields
        if make is not None:
            return Frame(make, **{"seq": self._far(), **values})
        drawn = wire_random.frame(rng, kinds, most=rng.choice([1, 4, 20]), **values)
        while isinstance(drawn.body, Sack) and drawn.body.words:
            drawn = wire_random.frame(rng, kinds, **values)
        if drawn.type in SESSIONLESS:
            values["ack"] = 0
        elif "seq" not in fields:
            values["seq"] = self._behind()
        return Frame(drawn.body, **{"seq": drawn.seq, **values})

    def credit(self, cls=None):
        """Credits of the right or a wrong generation that revoke granted credits."""
        rng = self._rng
        headers, units = (rng.choice([0, rng.getrandbits(16)]) for _ in range(2))
        return Credit(rng.randrange(3) if cls is None else cls,
                      rng.choice([1, 1, rng.randrange(256)]), headers, units, 0)

    def entries(self):
        return self.credit(0), self.credit(1), self.credit(2)

    # Kinds of frames.

    def unknown_node(self, target):
        node = self._rng.choice(sorted({0, 0xFFF, 0x2A5, *range(0x100, 0x120)} - self._nodes))
        return build(self.frame(target, src_node=node))

    def other_destination(self, target):
        others = sorted({0, 0xFFF, *self._nodes, *range(0x100, 0x120)} - {target.node})
        return build(self.frame(target, dst_node=self._rng.choice(others)))

    def other_stream(self, target):
        return build(self.frame(target, stream=self._rng.randint(8, 15)))

    def wrong_session(self, target):
        tags = {peer.tag for peer in target.peers}
        tag = next(t for t in iter(lambda: self._rng.getrandbits(16), None) if t not in tags)
        return build(self.frame(target, tag=self._rng.choice([0, tag]) if 0 not in tags else tag,
                                seq=0))

    def wrong_slot(self, target):
        slots = self._rng.choice([{"src_slot": 200}, {"dst_slot": 200},
                                  {"src_slot": 77, "dst_slot": 99}])
        return build(self.frame(target, **slots))

    def stale(self, target):
        return build(self.frame(target, "tlp"))

    def ahead(self, target):
        return build(self.frame(target, "tlp", seq=self._ahead()))

    def forged_ack(self, target):
        return build(self.frame(target, make=Ack(self.entries())))

    def forged_fence(self, target):
        return build(self.frame(target, make=Fence(self._rng.randrange(4)), credit=None))

    def forged_nak(self, target):
        return build(self.frame(target, make=Sack(self.entries(), ())))

    def hello(self, target):
        return build(self.frame(target, "hello"))

    def damaged(self, target):
        # A HELLO that becomes another type has numbers 0: whether these are near those of the
        # session depends on its age.
        while True:
            data = wire_random.mutate(self._rng, build(self.frame(target)))
            if len(data) < 30 or any(data[24:30]) or data[14] & 15 in SESSIONLESS:
                return data

    def truncated(self, target):
        data = build(self.frame(target, "tlp"))
        return data[:4 * self._rng.randint(3, len(data) // 4)]

    def wrong_count(self, target):
        data = bytearray(build(self.frame(target, "tlp")))
        data[15] = data[15] & 0xE0 | self._rng.randrange(32)
        return reseal(bytes(data))

    def longer(self, target):
        data = build(self.frame(target, "handled"))
        return data + self._rng.choice([bytes, self._rng.randbytes])(
            4 * self._rng.choice([1, 10, 400]))

    def giant(self, target):
        data = build(self.frame(target, "tlp"))
        return data.ljust(4 * self._rng.choice([LARGEST // 4 - 1, LARGEST // 4, LARGEST // 4 + 1]),
                          b"\0")

    def wrong_padding(self, target):
        tlp = bytes([0, 0, 0, 1, 0, 0, 0, 15]) + self._rng.randbytes(4)  # a read: 52 bytes
        data = bytearray(build(self.frame(target, make=Tlps((tlp,)), credit=None)))
        data[-self._rng.randint(1, 12)] = self._rng.randint(1, 255)
        return bytes(data)

    def unknown_type(self, target):
        data = bytearray(build(self.frame(target)))
        data[14] = data[14] & 0xF0 | self._rng.randint(11, 15)
        return reseal(bytes(data))

    def other_protocol(self, target):
        rng = self._rng
        return bytes(12) + b"\x88\xb5" + rng.randbytes(rng.choice([46, 50, 110, 498]))

    def other_ethertype(self, target):
        data = build(self.frame(target))
        kind = self._rng.choice([0x0800, 0x0806, 0x86DD, 0x88B6, 0x88F7, 46])
        return data[:12] + kind.to_bytes(2, "big") + data[14:]

    def other_version(self, target):
        data = bytearray(build(self.frame(target)))
        data[14] = data[14] & 15 | self._rng.choice([0, 2, 15]) << 4
        return reseal(bytes(data))


#: Kinds of frames, by name.
KINDS: dict[str, Callable[[Intruder, Target], bytes]] = {
    make.__name__.replace("_", " "): make for make in (
        Intruder.unknown_node, Intruder.other_destination, Intruder.other_stream,
        Intruder.wrong_session, Intruder.wrong_slot, Intruder.stale, Intruder.ahead,
        Intruder.forged_ack, Intruder.forged_fence, Intruder.forged_nak, Intruder.hello,
        Intruder.damaged, Intruder.truncated, Intruder.wrong_count, Intruder.longer,
        Intruder.giant, Intruder.wrong_padding, Intruder.unknown_type, Intruder.other_protocol,
        Intruder.other_ethertype, Intruder.other_version)}
