"""Random DXF frames, good and hostile, for tests of receivers."""

import random
from typing import Any

from dxpu.fabric.wire.frame_types import Body as Layout
from dxpu.fabric.wire.frame_types import FrameType, Numbering

from .wire import (
    BODIES, Ack, Body, Credit, Data, Frame, Hello, Mgmt, Sack, Tlps, build, reseal, split,
)

__all__ = ["credit", "frame", "hello", "mutate", "random_tlp"]


def random_tlp(rng: random.Random, *, largest: int = 32, prefixes: bool = True) -> bytes:
    """A random TLP of consistent length: any Fmt, 0 to 4 prefixes, with or without digest; else
    noise.
    """
    count = rng.choice([0, 0, 0, 1, 2, 4]) if prefixes else 0
    data = b"".join(bytes([0x80 | rng.getrandbits(5)]) + rng.randbytes(3) for _ in range(count))
    form, td = rng.randrange(4), rng.randrange(4) == 0
    length = rng.choice([1, 2, 3, 4, 5, 16, rng.randint(1, largest), largest])
    noise = rng.randbytes(16)
    data += bytes([form << 5 | noise[0] & 31, noise[1],
                   td << 7 | noise[2] & 0x7C | length >> 8 & 3, length & 255])
    data += noise[4:16 if form & 1 else 12]
    return data + rng.randbytes(4 * (length if form & 2 else 0) + 4 * td)


def credit(rng: random.Random, cls: int | None = None) -> Credit:
    """A credit extension, or the entry of class ``cls``."""
    u16 = (rng.getrandbits(16) for _ in range(3))
    return Credit(rng.randrange(3) if cls is None else cls, rng.getrandbits(8), *u16)


#: The first of these are drawn as ``handled``.
_KINDS = (FrameType.TLP, FrameType.ACK, FrameType.EVENT, FrameType.SACK, FrameType.HELLO,
          FrameType.HELLO_ACK, FrameType.FENCE, FrameType.HDR, FrameType.DATA, FrameType.MGMT)


def _fields(rng: random.Random, kind: FrameType) -> Body:
    """A body that is nothing but its fields."""
    values = {name.replace(" ", "_"): rng.getrandbits(8 * size)
              for name, size in kind.body.fields if name != "zero"}
    return BODIES[kind](**values)


def hello(rng: random.Random, kind: FrameType) -> Hello:
    """HELLO, HELLO_ACK or HELLO_DONE, often with a key."""
    values = {name: rng.getrandbits(8 * size) for name, size in Hello.FIELDS}
    values["security_mode"] *= rng.getrandbits(1)
    done = kind == FrameType.HELLO_DONE
    size = Layout.KEYED.size - Layout.HELLO.size
    keyed = rng.randbytes(size) if done or values["security_mode"] else b""
    return Hello(**values, answer=kind == FrameType.HELLO_ACK, done=done, keyed=keyed)


def frame(rng: random.Random, kinds: str = "tlp", *, most: int = 31, largest: int = 32,
          **fields: Any) -> Frame:
    """A valid frame.

    ``kinds`` is "tlp", "handled" (by the depacketizer: TLP, ACK, EVENT), "hello" (with HELLO_ACK)
    or "any". ``most`` and ``largest`` limit the number of records and their payload dwords.
    ``fields`` fixes fields of the frame.
    """
    types = (*_KINDS, *(kind for kind in FrameType if kind not in _KINDS))
    kind = types[{"tlp": 0, "handled": rng.choice([0, 0, 0, 1, 2]), "hello": rng.choice([4, 5]),
                  "any": rng.randrange(len(types))}[kinds]]
    entries = (credit(rng, 0), credit(rng, 1), credit(rng, 2))
    count = rng.choice([1, 1, 2, 3, rng.randint(1, most)])
    body = {
        Layout.RECORDS: lambda: Tlps(tuple(random_tlp(rng, largest=largest)
                                           for _ in range(min(count, most)))),
        Layout.LIMITS: lambda: Ack(entries),
        Layout.SACK: lambda: Sack(entries, tuple(rng.getrandbits(64)
                                                 for _ in range(rng.randrange(3))),
                                  rng.getrandbits(1)),
        Layout.HEADER: lambda: split(random_tlp(rng), 64)[0],
        Layout.DATA: lambda: Data(4 * rng.getrandbits(14), rng.randbytes(4 * rng.randint(1, 16)),
                                  rng.getrandbits(32)),
        Layout.HELLO: lambda: hello(rng, kind),
        Layout.KEYED: lambda: hello(rng, kind),
        Layout.OPAQUE: lambda: Mgmt(rng.randbytes(4 * rng.randint(7, 20))),
    }.get(kind.body, lambda: _fields(rng, kind))()
    numbered = kind.numbering != Numbering.NONE
    values = {
        "dst_node": rng.getrandbits(12), "src_node": rng.getrandbits(12),
        "dst_slot": rng.getrandbits(8), "src_slot": rng.getrandbits(8),
        "path": rng.getrandbits(4), "stream": rng.getrandbits(4), "tag": rng.getrandbits(16),
        "seq": rng.getrandbits(24) * numbered, "ack": rng.getrandbits(24) * numbered,
        "ar": rng.getrandbits(1) == 1, "credit": rng.choice([None, credit(rng)]),
    }
    return Frame(body, **{**values, **fields})


def mutate(rng: random.Random, data: bytes) -> bytes:
    """``data`` with random damage, still whole dwords, often with a matching HCRC."""
    damaged = bytearray(data)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 5])):
        # Positions that steer the receiver, or random positions.
        where = rng.choice([14, 15, 32, 34, 35, 40, 42, 43, rng.randrange(len(damaged)),
                            rng.randrange(len(damaged)), len(damaged) - 1 - rng.randrange(12)])
        damaged[where] = rng.choice([damaged[where] ^ 1 << rng.randrange(8), rng.getrandbits(8)])
    if rng.random() < 0.3:
        cut = rng.choice([4, 4, 8, 4 * rng.randint(1, len(damaged) // 4)])
        damaged = damaged[:max(4, len(damaged) - cut)]
    elif rng.random() < 0.3:
        damaged += rng.choice([bytes, rng.randbytes])(4 * rng.choice([1, 2, rng.randint(1, 40)]))
    if len(damaged) >= 40 and rng.random() < 0.8:
        return reseal(bytes(damaged))
    return bytes(damaged)


def packed(rng: random.Random, count: int, dwords: int) -> bytes:
    """A frame of ``count`` writes of ``dwords`` dwords each."""
    tlp = bytes([0x60, 0, dwords >> 8 & 3, dwords & 255]) + rng.randbytes(12 + 4 * dwords)
    return build(Frame(Tlps((tlp,) * count)))
