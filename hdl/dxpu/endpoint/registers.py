"""The registers of the endpoint in BAR 0."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out

from .register_map import (
    COUNTERS, MAGIC, MSIX_PENDING, MSIX_TABLE, NAME_OFFSET, NAME_SIZE, REGISTERS, VECTORS,
)
from .store import DEPTH
from .types import Errors, Settings

__all__ = ["Registers", "store_index"]

OFFSETS = REGISTERS | COUNTERS
#: Registers in the store, which keep what software writes, with their lowest bit.
STORED = {"SCRATCH": 0, "RING_LOW": 5, "RING_HIGH": 0, "FENCE_LOW": 2, "FENCE_HIGH": 0}
#: Errors that are counted, by register.
COUNTED = {
    "ERROR": ("failed",), "UNSUPPORTED": ("refused_np", "refused_p"), "MALFORMED": ("malformed",),
    "POISONED": ("poisoned",), "UNEXPECTED": ("unexpected",), "TIMEOUTS": ("timeout",),
}
COUNT_BITS = 8


class Registers(wiring.Component):
    """Register file of BAR 0, with error counters, and the access to the MSI-X table.

    What only keeps a value is in a :class:`~.store.Store`, outside. So a read takes two cycles:
    first the store is read, then the register. A write has taken effect two cycles later: first its
    address and its value are judged, then it acts.

    Parameters
    ----------
    identity : :class:`~.config_map.GpuIdentity`
    vram_bytes : int
        Size of the video memory.
    tags : int
        Largest number of reads in flight, 1 to 8.

    Members
    -------
    read_address : 16
        Multiple of 4.
    stored : 32
        Word ``read_address`` [7:2] of the store.
    read_data : 32
        Combinational.
    readable : 1
        A register exists at ``read_address``.
    write, write_address, write_data : 1, 16, 32
        Strobe: write a register.
    refused : 1
        Pulse, one cycle after ``write``: no register exists there, or it does not take the value.
    vectors : ``VECTORS``
        Pulse at the bit of the vector number that was written to ``INTERRUPT``.
    store_write, store_index, store_value : 1, 6, 32
        Strobe: write a word of the store.
    mask_write, mask_vector, mask_value : 1, 3, 1
        Strobe: write the mask bit of a vector.
    vector_masks, pending : ``VECTORS``
        Mask bits and pending bits of MSI-X.
    errors : :class:`~.types.Errors`
    finished, failed : 1
        Pulses: a command was finished; the command failed.
    busy : 1
        A command is being executed.
    settings : :class:`~.types.Settings`
    """

    def __init__(self, identity, *, vram_bytes, tags):
        super().__init__({
            "read_address": In(16), "stored": In(32), "read_data": Out(32), "readable": Out(1),
            "write_address": In(16), "write_data": In(32), "write": In(1), "refused": Out(1),
            "vectors": Out(VECTORS), "store_write": Out(1), "store_index": Out(range(DEPTH)),
            "store_value": Out(32), "mask_write": Out(1), "mask_vector": Out(range(VECTORS)),
            "mask_value": Out(1), "vector_masks": In(VECTORS), "pending": In(VECTORS),
            "errors": In(Errors), "finished": In(1), "failed": In(1), "busy": In(1),
            "settings": Out(Settings),
        })
        self._identity = identity
        self._vram_mib = vram_bytes >> 20
        self._tags = tags

    def elaborate(self, platform):
        m = Module()
        # Whether the register is other than 0. After a reset it is 0, whatever the store keeps.
        kept = {name: Signal(name=f"{name.lower()}_kept") for name in STORED}
        values = {"DOORBELL": Signal(32, name="doorbell")}
        head, ring_mask = Signal(32), Signal(16)
        tags = Signal(range(self._tags + 1), init=self._tags)
        read_mask = Signal(12, init=127)
        counts = {name: Signal(COUNT_BITS, name=f"{name.lower()}_count") for name in COUNTED}
        failed, idle = Signal(), Signal()
        serial = self._identity.serial
        settings = self.settings
        m.d.comb += [settings.waiting.eq(head != values["DOORBELL"]),
                     idle.eq(~settings.waiting & ~self.busy)]
        values |= counts | {
            "MAGIC": MAGIC, "VERSION": 1, "VRAM_MIB": self._vram_mib,
            "SERIAL_LOW": serial & 0xffff_ffff, "SERIAL_HIGH": serial >> 32,
            "STATUS": Cat(~idle, failed), "TAGS": tags, "READ_SIZE": _power(read_mask),
            "RING_SIZE": _power(ring_mask), "HEAD": head, "INTERRUPT": 0,
        }
        m.d.comb += [
            settings.tags.eq(tags),
            settings.read_mask.eq(read_mask),
            settings.ring.eq(Cat(kept["RING_LOW"], kept["RING_HIGH"])),
            settings.slot.eq(head & ring_mask),
            settings.fence.eq(Cat(kept["FENCE_LOW"], kept["FENCE_HIGH"])),
        ]
        with m.If(self.finished):
            m.d.sync += head.eq(head + 1)
        with m.If(self.failed):
            m.d.sync += failed.eq(1)
        for name, causes in COUNTED.items():
            pulses = [self.failed if cause == "failed" else self.errors[cause]
                      for cause in causes]
            with m.If(Cat(pulses).any()):
                m.d.sync += counts[name].eq(counts[name] + 1)

        self._read(m, values, kept)
        self._write(m, values, kept, counts, tags, read_mask, ring_mask, failed, idle)
        return m

    def _write(self, m, values, kept, counts, tags, read_mask, ring_mask, failed, idle):
        """Judge a write, and carry it out one cycle later."""
        head = values["HEAD"]
        wanted, power, less, is_vector = self.write_data, Signal(), Signal(17), Signal()
        # The value, and less one, when the write acts.
        data, mask = Signal(32, reset_less=True), Signal(17, reset_less=True)
        m.d.comb += [less.eq(wanted[:17] - 1),
                     power.eq(~(wanted[:17] & less).any() & ~wanted[17:].any()),
                     is_vector.eq(~wanted[(VECTORS - 1).bit_length():].any()),
                     self.mask_value.eq(data[0]),
                     self.mask_vector.eq(self.store_index[2:])]
        m.d.sync += [data.eq(wanted), mask.eq(less),
                     self.store_index.eq(store_index(self.write_address))]
        # By register: whether it takes the value, and how.
        rules = {
            "DOORBELL": (1, values["DOORBELL"].eq(data)),
            **{name: (1, flag.eq(self.store_value.any())) for name, flag in kept.items()},
            **{name: (1, count.eq(0)) for name, count in counts.items()},
            "TAGS": (1, tags.eq(Mux(data[4:].any() | (data[:4] > self._tags), self._tags,
                                    Mux(data[:4] == 0, 1, data)))),
            "READ_SIZE": (power & wanted[2:13].any(), read_mask.eq(mask)),
            # 0 counts as 1.
            "RING_SIZE": (power, ring_mask.eq(Mux(data[:17].any(), mask, 0))),
            "HEAD": (idle, head.eq(data)),
        }
        acts = Signal(StructLayout(dict.fromkeys((*rules, "INTERRUPT"), 1)))
        in_table = Signal()  # the dword that is written is one of the MSI-X table
        m.d.sync += [acts.eq(0), in_table.eq(0), self.refused.eq(self.write)]
        m.d.comb += self.store_value.eq(data)
        for name, lowest in STORED.items():
            if lowest:
                with m.If(acts[name]):
                    m.d.comb += self.store_value[:lowest].eq(0)
        is_control = self.store_index[:2] == 3
        m.d.comb += [
            self.store_write.eq(in_table & ~is_control | Cat(acts[name] for name in STORED).any()),
            self.mask_write.eq(in_table & is_control),
        ]
        with m.If(self.write):
            with m.Switch(self.write_address[2:]):
                for name, (allowed, _) in rules.items():
                    with m.Case(OFFSETS[name] >> 2):
                        m.d.sync += [acts[name].eq(allowed), self.refused.eq(~allowed)]
                with m.Case(OFFSETS["INTERRUPT"] >> 2):
                    m.d.sync += [acts.INTERRUPT.eq(is_vector), self.refused.eq(~is_vector)]
                with m.Case(*_dwords(MSIX_TABLE, 16 * VECTORS)):
                    m.d.sync += [in_table.eq(1), self.refused.eq(0)]
        for name, (_, action) in rules.items():
            with m.If(acts[name]):
                m.d.sync += action
        with m.If(acts.ERROR):
            m.d.sync += failed.eq(0)
        with m.If(acts.INTERRUPT):
            m.d.comb += self.vectors.eq(1 << data[:3])

    def _read(self, m, values, kept):
        name = self._identity.name.encode("ascii").ljust(NAME_SIZE, b"\0")
        words = {offset >> 2: values[register] for register, offset in OFFSETS.items()
                 if register not in STORED}
        words |= {NAME_OFFSET + n >> 2: int.from_bytes(name[n:n + 4], "little")
                  for n in range(0, NAME_SIZE, 4)}
        words |= {MSIX_PENDING >> 2: self.pending, (MSIX_PENDING >> 2) + 1: 0}
        # The register is the word of the store; its bit 0 is a mask bit.
        own, shows, masks = Signal(32), Signal(), Signal()
        is_control = self.read_address[2:4] == 3
        m.d.comb += self.readable.eq(1)
        with m.Switch(self.read_address[2:]):
            for dword, value in words.items():
                with m.Case(dword):
                    m.d.comb += own.eq(value)
            with m.Case(*(OFFSETS[name] >> 2 for name in STORED)):
                m.d.comb += shows.eq(Cat((self.read_address[2:7] == OFFSETS[name] >> 2) & flag
                                         for name, flag in kept.items()).any())
            with m.Case(*_dwords(MSIX_TABLE, 16 * VECTORS)):
                m.d.comb += [
                    shows.eq(~is_control),
                    masks.eq(is_control & self.vector_masks.bit_select(self.read_address[4:7], 1))]
            with m.Default():
                m.d.comb += self.readable.eq(0)
        m.d.comb += self.read_data.eq(own | Mux(shows, self.stored, masks))


def _power(mask):
    """``mask + 1``, for a mask that is a power of two less one."""
    return Cat(C(1, 1), mask) & ~Cat(mask, C(0, 1))


def store_index(address):
    """Where a dword of BAR 0, or of the MSI-X table, is in the store."""
    return Cat(address[2:7], address[15])


def _dwords(offset, size):
    """Pattern of the dword numbers of an aligned range of bytes in BAR 0."""
    low = (size // 4).bit_length() - 1
    return (f"{offset // size:0{14 - low}b}" + "-" * low,)
