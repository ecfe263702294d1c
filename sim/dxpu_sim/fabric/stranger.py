"""A stranger who sends frames as fast as the line takes them; simulation only.

He knows the wire format and both nodes, and nothing that was drawn by chance: session tags, numbers
of frames, nonces, keys. So he tries all tags, one after the other.
"""

from dataclasses import replace

from amaranth import *
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from dxpu.fabric.wire.format import Role, SecurityMode
from dxpu.fabric.wire.frame_types import FrameType
from dxpu.stream import PacketSignature
from dxpu_model import wire_random
from dxpu_model.crc import crc16_ccitt_false
from dxpu_model.wire import Ack, Credit, Event, Fence, Frame, Hello, Mgmt, Sack, Tlps, build

__all__ = ["Stranger", "templates"]

#: Bytes of a beat, and most beats of a frame.
_BEAT, _BEATS = 8, 16
#: Bytes that HCRC covers, from byte 14 on; places of tag, SEQ and HCRC in a frame.
_GUARDED, _FROM, _TAG, _SEQ, _HCRC = 16, 14, 22, 24, 30
#: Place of the CRC of a record: behind the header and a TLP of five dwords.
_RECORD = 52
_LIMITS = tuple(Credit(cls, 1, 0xFFFF, 0xFFFF, 0) for cls in range(3))
#: A write of a dword, with 4 DW of header: byte 0 to 3 of address 1_0000_0000h.
_WRITE = bytes.fromhex("60000001" "0000000f" "00000001" "00000000") + b"evil"
#: What a stranger may send with any tag: each acts in a session that it fits.
_SWEPT = {
    "TLP": Tlps((_WRITE,)),
    "EVENT": Event(3, 1),
    "ACK": Ack(_LIMITS),
    "SACK": Sack(_LIMITS, (), 0),
    "FENCE": Fence(1),
}


#: Boot counter that he supposes, and how many tags after it he tries.
_BOOT, _GUESSES = 1, 24


def first_tag(boot):
    """The first tag of an end without keys (:class:`~dxpu.fabric.session.session.SessionKeeper`),
    which anyone can work out."""
    return boot >> 3 | (boot & 7) << 13


def templates(rng, end, nodes):
    """Frames without FCS to ``end``, lists of them by what they are for.

    "TLP", "EVENT", "ACK", "SACK", "FENCE": one of each, with tag, SEQ and ACK 0. "HELLO",
    "HELLO_ACK", "HELLO_DONE", "MGMT": one of each, with random content. "take over": a HELLO in
    clear, and ACKs that confirm it if the tag was guessed. "pose": HELLO_ACKs in clear, to nonces
    and tags that were guessed, and ACKs of the session that one of them opens. ``nodes`` are
    those of both ends, by name.
    """
    source, = (node for name, node in nodes.items() if name != end)
    common = dict(dst_node=nodes[end], src_node=source)
    slots = dict(dst_slot=1 if end == "box" else 0, src_slot=0 if end == "box" else 1)
    frames = {name: [Frame(body, **common, **slots)] for name, body in _SWEPT.items()}
    for kind in (FrameType.HELLO, FrameType.HELLO_ACK, FrameType.HELLO_DONE):
        drawn = wire_random.hello(rng, kind)
        frames[kind.name] = [Frame(replace(drawn, security_mode=1, keyed=rng.randbytes(32)),
                                   **common)]
    frames["MGMT"] = [Frame(Mgmt(rng.randbytes(64)), **common)]
    plain = Hello(0x5A5A5A5A, 0x6666, 0, Role.HOST, 1, 0, SecurityMode.NONE, 0xFFFF, 64, 0, 0, 0,
                  _BOOT, 0)
    guessed = [first_tag(_BOOT) + n for n in range(_GUESSES)]
    confirm = [Frame(Ack(_LIMITS), tag=tag, **common) for tag in guessed]
    frames["take over"] = [Frame(plain, **common), *confirm]
    frames["pose"] = [*(Frame(replace(
        plain, nonce=_BOOT << 16 | tag, tag_echoed=tag, role=Role.BOX, answer=True), tag=tag,
        **common) for tag in guessed), *confirm]
    return {name: [build(frame) for frame in made] for name, made in frames.items()}


def _weights(start, bits):
    """What each bit of a field changes in HCRC: a CRC is linear, but for its initial value."""
    zero = crc16_ccitt_false(bytes(_GUARDED))
    for n in range(bits):
        data = bytearray(_GUARDED)
        data[start - _FROM + (bits - 1 - n) // 8] ^= 1 << n % 8
        yield zero ^ crc16_ccitt_false(bytes(data))


def _resealed(m, tag, seq):
    """What ``tag`` and ``seq`` change in the HCRC of a frame in which both are 0."""
    change = Signal(16)
    weights = [*_weights(_TAG, 16), *_weights(_SEQ, 24)]
    m.d.comb += change.eq(Cat(
        Cat(bit & (weight >> k & 1) for bit, weight in zip(Cat(tag, seq), weights, strict=True)
            ).xor() for k in range(16)))
    return change


def _swap(value):
    """A number as bytes, the highest first."""
    return Cat(value.word_select(n, 8) for n in reversed(range(len(value) // 8)))


class Stranger(wiring.Component):
    """Sends one template after the other, again and again.

    Parameters
    ----------
    frames : list of bytes
        Templates: whole frames without FCS, of at most 128 bytes.

    Members
    -------
    o : packet stream of 64 bits
    enable : 1
    first, last : numbers of templates
        Those that are sent: from ``first`` to ``last``.
    sweeps, start : 1, 16
        The templates have tag, SEQ and ACK 0. Frames have another tag in each round of templates,
        from ``start`` on, and one SEQ from 0 to 63, for each tag another one in each round of
        tags. Otherwise frames leave as they are.
    count, limit : 32
        Frames that were sent; none more when there were ``limit``.
    """

    def __init__(self, frames):
        self._frames = frames
        number = range(len(frames))
        super().__init__({
            "o": Out(PacketSignature(64)), "enable": In(1), "first": In(number),
            "last": In(number), "sweeps": In(1), "start": In(16), "count": Out(32), "limit": In(32),
        })

    def elaborate(self, platform):
        m = Module()
        beats = [data.ljust(_BEAT * _BEATS, b"\0") for data in self._frames]
        m.submodules.beats = stored = memory.Memory(
            shape=64, depth=len(beats) * _BEATS, init=[
                int.from_bytes(data[n:n + _BEAT], "little") for data in beats
                for n in range(0, len(data), _BEAT)])
        read = stored.read_port(domain="comb")
        lasts = Array(Const((len(data) - 1) // _BEAT, range(_BEATS)) for data in self._frames)
        dwords = Array(Const((len(data) // 4 - 1) % 2 + 1, 2) for data in self._frames)
        bound = Array(Const(data[_FROM] & 15 == FrameType.TLP, 1) for data in self._frames)
        number, beat = Signal.like(self.first), Signal(range(_BEATS))
        tag, seq, turn = Signal(16), Signal(24), Signal(6)
        with m.If(~self.enable & (beat == 0)):
            m.d.sync += [number.eq(self.first), tag.eq(self.start)]
        o, now, change = self.o, [Const(0, 64)] * _BEATS, _resealed(m, tag, seq)
        now[_TAG // _BEAT] = _swap(tag) << 8 * (_TAG % _BEAT)
        now[_SEQ // _BEAT] = (_swap(seq) << 8 * (_SEQ % _BEAT)
                              | _swap(change) << 8 * (_HCRC % _BEAT))
        now[_RECORD // _BEAT] = Mux(bound[number], Cat(seq[:16], tag) << 8 * (_RECORD % _BEAT), 0)
        m.d.comb += [
            read.addr.eq(Cat(beat, number)), seq.eq((tag[:6] + tag[6:12] + turn)[:6]),
            o.payload.data.eq(read.data ^ Mux(self.sweeps, Array(now)[beat], 0)),
            o.payload.first.eq(beat == 0), o.payload.last.eq(beat == lasts[number]),
            o.payload.dwords.eq(Mux(o.payload.last, dwords[number], 2)),
            o.valid.eq((beat != 0) | self.enable & (self.count != self.limit)),
        ]
        with m.If(o.valid & o.ready):
            m.d.sync += beat.eq(beat + 1)
            with m.If(o.payload.last):
                m.d.sync += [beat.eq(0), number.eq(number + 1), self.count.eq(self.count + 1)]
                with m.If(number == self.last):
                    m.d.sync += [number.eq(self.first), tag.eq(tag + 1)]
                    with m.If((tag + 1)[:16] == self.start):
                        m.d.sync += turn.eq(turn + 1)
        return m
