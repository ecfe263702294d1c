"""Hostile TLPs, as a broken or malicious PCIe device or host may send them, from a seed.

Most are well-formed TLPs with one broken property, so that they get as far as possible. Plain
Python; a golden model must say how a design should react.
"""

import random
from dataclasses import dataclass, field

from dxpu.tlp.types import Fmt, Malformed, Type
from dxpu_model.tlp import (
    ATOMIC, COMPLETION, KINDS, MEMORY, Tlp, classify, is_message, malformed, random_tlp,
)

__all__ = ["Aim", "Hostile", "HostileSource"]


@dataclass(frozen=True)
class Hostile:
    """A TLP, the verdict of its source, and the kind of damage."""

    raw: bytes
    discard: bool
    kind: str


@dataclass
class Aim:
    """Targets of TLPs, mostly near the borders of existing targets.

    Attributes
    ----------
    addresses : list of int
        Memory addresses, at least one below 4 GiB; a TLP goes to the same page or to a neighbouring
        page.
    ports : list of int
        I/O addresses.
    identifiers : list of int
        IDs of functions, for TLPs routed by ID.
    requesters : list of int
        Accepted requester IDs.
    """

    addresses: list[int] = field(default_factory=lambda: [0])
    ports: list[int] = field(default_factory=lambda: [0])
    identifiers: list[int] = field(default_factory=lambda: [0])
    requesters: list[int] = field(default_factory=lambda: [0])


class HostileSource:
    """Generator of hostile TLPs.

    Parameters
    ----------
    rng : random.Random
    aim : :class:`Aim`
    writes : bool
        Include configuration writes.
    discards : float
        Share of TLPs marked as bad by the source itself.
    """

    #: Kinds of TLPs, with weights.
    KINDS = {
        "fair": 12, "bit": 8, "noise": 4, "reserved": 4, "truncated": 4, "overlong": 4,
        "length": 4, "prefixes": 4, "crossing": 3, "enables": 4, "message": 8, "completion": 6,
        "spoofed": 6, "huge": 1.2, "tiny": 8,
    }

    def __init__(self, rng: random.Random, aim: Aim, *, writes: bool = False,
                 discards: float = 0.03):
        self.rng = rng
        self.aim = aim
        self._discards, self._writes = discards, writes
        self._kinds = tuple(k for k in KINDS if writes or not k.startswith("CfgWr"))

    def draw(self) -> Hostile:
        """The next TLP."""
        kind, = self.rng.choices(list(self.KINDS), list(self.KINDS.values()))
        raw = getattr(self, f"_{kind}")()
        while not self._writes and self._is_config_write(raw):  # damage turned it into a write
            raw = getattr(self, f"_{kind}")()
        return Hostile(raw, self.rng.random() < self._discards, kind)

    @staticmethod
    def _is_config_write(raw: bytes) -> bool:
        if malformed(raw) is not Malformed.NONE:
            return False
        info = classify(raw)
        return bool(info.is_config and info.is_write)

    # Aiming

    def identifier(self) -> int:
        """Identifier of a function, or a value near it."""
        rng = self.rng
        chosen = rng.choice(self.aim.identifiers)
        return (chosen + rng.choice([0, 0, 0, 0, 0x100, -0x100, 1, 8, rng.getrandbits(8)])) & 0xFFFF

    def aimed(self, tlp: Tlp, *, spoofed: bool = False) -> Tlp:
        """``tlp`` with a plausible address, target and requester ID."""
        rng = self.rng
        if tlp.type in (*MEMORY, *ATOMIC):
            space = 1 << (64 if tlp.fmt & 1 else 32)
            page = rng.choice([a for a in self.aim.addresses if a < space]) + rng.choice(
                [0, 0, 0, -0x1000, 0x1000])
            tlp.address = page % space & ~0xFFF | tlp.address & 0xFFF
        elif tlp.type == Type.IO:
            tlp.address = (rng.choice(self.aim.ports) + 4 * rng.randrange(-4, 4)) & 0xFFFF_FFFC
        elif tlp.type in COMPLETION:
            tlp.requester_id = self.identifier()
            return tlp
        else:
            tlp.target_id = self.identifier()
            tlp.register = rng.choice([tlp.register, rng.randrange(128)])
        tlp.requester_id = rng.choice(self.aim.requesters)
        if spoofed:
            tlp.requester_id = rng.choice([rng.getrandbits(16), self.identifier()])
        return tlp

    def _one(self, *, kinds=None, max_payload: int = 12, **options) -> Tlp:
        return self.aimed(random_tlp(self.rng, max_payload=max_payload,
                                     kinds=kinds or self._kinds), **options)

    def _of(self, *kinds: str) -> tuple[str, ...]:
        return tuple(k for k in self._kinds if k.startswith(kinds))

    # Kinds; each method returns bytes, a whole number of dwords.

    def _fair(self) -> bytes:
        return self._one(max_payload=self.rng.choice([1, 4, 40])).pack()

    def _bit(self) -> bytes:
        raw = bytearray(self._one().pack())
        raw[self.rng.randrange(min(len(raw), 16))] ^= 1 << self.rng.randrange(8)
        return bytes(raw)

    def _noise(self) -> bytes:
        return self.rng.randbytes(4 * self.rng.randint(1, 12))

    def _reserved(self) -> bytes:
        raw = self._one().pack()
        return bytes([self.rng.randrange(256)]) + raw[1:]

    def _truncated(self) -> bytes:
        raw = self._one().pack()
        return raw[:4 * self.rng.randint(1, max(1, len(raw) // 4 - 1))]

    def _overlong(self) -> bytes:
        return self._one().pack() + self.rng.randbytes(4 * self.rng.choice([1, 1, 2, 20]))

    def _length(self) -> bytes:
        tlp = self._one()
        return Tlp(**{**vars(tlp), "length": self.rng.choice([
            0, tlp.length + 1, max(tlp.length - 1, 0), self.rng.getrandbits(10)])}).pack()

    def _prefixes(self) -> bytes:
        """Up to nine prefixes; in half of the TLPs all prefixes are end-to-end."""
        tlp = self._one(max_payload=4)
        local = self.rng.random() < 0.5
        tlp.prefixes = tuple(
            bytes([Fmt.PREFIX << 5 | self.rng.getrandbits(5) | (0 if local else 16)])
            + self.rng.randbytes(3) for _ in range(self.rng.randint(1, 9)))
        return tlp.pack()

    def _crossing(self) -> bytes:
        tlp = self._one(kinds=self._of("MRd", "MWr"))
        tlp.first_be = tlp.last_be = 15
        tlp.length = self.rng.randint(2, 30)
        if tlp.fmt & 2:
            tlp.payload = self.rng.randbytes(4 * tlp.length)
        tlp.address = tlp.address & ~0xFFF | 0x1000 - 4 * self.rng.randint(1, tlp.length)
        return tlp.pack()

    def _enables(self) -> bytes:
        tlp = self._one(kinds=self._of("MRd", "MWr", "IO", "Cfg", "FetchAdd"), max_payload=3)
        tlp.first_be, tlp.last_be = self.rng.getrandbits(4), self.rng.getrandbits(4)
        return tlp.pack()

    def _message(self) -> bytes:
        tlp = self._one(kinds=("Msg", "MsgD"), max_payload=self.rng.choice([1, 1, 30]))
        tlp.type = tlp.type & 0x18 | self.rng.randrange(8)
        tlp.message_code = self.rng.choice([tlp.message_code, self.rng.randrange(256)])
        if self.rng.random() < 0.5:
            # A message that switches handle, correctly routed.
            routing, code = self.rng.choice(
                [(4, 0x20 + self.rng.randrange(8)), (3, 0x19), (5, 0x1B), (4, 0x50), (0, 0x30)])
            tlp.type, tlp.message_code, tlp.tc = tlp.type & 0x18 | routing, code, 0
        tlp.target_id = self.identifier()
        return tlp.pack()

    def _completion(self) -> bytes:
        tlp = self._one(kinds=self._of("Cpl"), max_payload=self.rng.choice([1, 8, 40]))
        tlp.status = self.rng.randrange(8)
        return tlp.pack()

    def _spoofed(self) -> bytes:
        return self._one(spoofed=True).pack()

    def _huge(self) -> bytes:
        kind = self.rng.choice(self._of("MWr", "CplD", "MsgD"))
        tlp = self._one(kinds=(kind,), max_payload=4)
        tlp.length = self.rng.choice([128, 129, 256, 500, 1024, self.rng.randint(128, 1024)])
        tlp.payload = self.rng.randbytes(4 * tlp.length)
        if not is_message(tlp.type) and tlp.type not in COMPLETION:
            tlp.address &= ~0xFFF
            tlp.first_be = tlp.last_be = 15
        return tlp.pack()

    def _tiny(self) -> bytes:
        tlp = self._one(kinds=self._of("MRd", "CfgRd", "IORd", "Cpl"), max_payload=1)
        tlp.prefixes, tlp.digest = (), None
        if tlp.type in MEMORY:
            tlp.length, tlp.first_be, tlp.last_be, tlp.th = 1, self.rng.getrandbits(4), 0, 0
        return tlp.pack()

