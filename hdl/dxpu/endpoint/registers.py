"""The registers of the endpoint in BAR 0."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.data import StructLayout
from amaranth.lib.wiring import In, Out

from .register_map import (
    COUNTERS, MAGIC, MSIX_PENDING, MSIX_TABLE, NAME_OFFSET, NAME_SIZE, REGISTERS, VECTORS,
)
from .types import Errors, Settings

__all__ = ["Registers"]

OFFSETS = REGISTERS | COUNTERS
#: Registers that keep what software writes, with a mask of their bits.
PLAIN = {
    "SCRATCH": 0xffff_ffff, "DOORBELL": 0xffff_ffff, "RING_LOW": 0xffff_ffe0,
    "RING_HIGH": 0xffff_ffff, "FENCE_LOW": 0xffff_fffc, "FENCE_HIGH": 0xffff_ffff,
}
#: Errors that are counted, by register.
COUNTED = {
    "ERROR": ("failed",), "UNSUPPORTED": ("refused_np", "refused_p"), "MALFORMED": ("malformed",),
    "POISONED": ("poisoned",), "UNEXPECTED": ("unexpected",), "TIMEOUTS": ("timeout",),
}
COUNT_BITS = 8


class Registers(wiring.Component):
    """Register file of BAR 0, with error counters, and the access to the MSI-X table.

    Reads are combinational. A write has taken effect two cycles later: first its address and its
    value are judged, then it acts.

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
    read_data : 32
    readable : 1
        A register exists at ``read_address``.
    write, write_address, write_data : 1, 16, 32
        Strobe: write a register.
    refused : 1
        Pulse, one cycle after ``write``: no register exists there, or it does not take the value.
    vectors : ``VECTORS``
        Pulse at the bit of the vector number that was written to ``INTERRUPT``.
    table_write, table_index, table_value : 1, 5, 32
        Strobe: write dword ``table_index`` of the MSI-X table.
    table_data : 32
        Dword ``read_address`` [6:2] of the MSI-X table.
    pending : ``VECTORS``
        Pending bits of MSI-X.
    errors : :class:`~.types.Errors`
    finished, failed : 1
        Pulses: a command was finished; the command failed.
    busy : 1
        A command is being executed.
    settings : :class:`~.types.Settings`
    """

    def __init__(self, identity, *, vram_bytes, tags):
        super().__init__({
            "read_address": In(16), "read_data": Out(32), "readable": Out(1),
            "write_address": In(16), "write_data": In(32), "write": In(1), "refused": Out(1),
            "vectors": Out(VECTORS), "table_write": Out(1), "table_index": Out(5),
            "table_value": Out(32), "table_data": In(32),
            "pending": In(VECTORS), "errors": In(Errors), "finished": In(1), "failed": In(1),
            "busy": In(1), "settings": Out(Settings),
        })
        self._identity = identity
        self._vram_mib = vram_bytes >> 20
        self._tags = tags

    def elaborate(self, platform):
        m = Module()
        values = {name: Signal(32, name=name.lower()) for name in PLAIN}
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
            settings.ring.eq(Cat(values["RING_LOW"], values["RING_HIGH"])),
            settings.slot.eq(head & ring_mask),
            settings.fence.eq(Cat(values["FENCE_LOW"], values["FENCE_HIGH"])),
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

        self._read(m, values)
        self._write(m, values, counts, tags, read_mask, ring_mask, failed, idle)
        return m

    def _write(self, m, values, counts, tags, read_mask, ring_mask, failed, idle):
        """Judge a write, and carry it out one cycle later."""
        head = values["HEAD"]
        wanted, power, less = self.write_data, Signal(), Signal(17)
        # The value, and less one, when the write acts.
        data, mask = Signal(32, reset_less=True), Signal(17, reset_less=True)
        m.d.comb += [less.eq(wanted[:17] - 1),
                     power.eq(~(wanted[:17] & less).any() & ~wanted[17:].any()),
                     self.table_value.eq(data)]
        m.d.sync += [data.eq(wanted), mask.eq(less), self.table_index.eq(self.write_address[2:])]
        # By register: whether it takes the value, and how.
        rules = {
            **{name: (1, values[name].eq(data & bits)) for name, bits in PLAIN.items()},
            **{name: (1, count.eq(0)) for name, count in counts.items()},
            "TAGS": (1, tags.eq(Mux(data > self._tags, self._tags, Mux(data == 0, 1, data)))),
            "READ_SIZE": (power & wanted[2:13].any(), read_mask.eq(mask)),
            # 0 counts as 1.
            "RING_SIZE": (power, ring_mask.eq(Mux(data[:17].any(), mask, 0))),
            "HEAD": (idle, head.eq(data)),
        }
        acts = Signal(StructLayout(dict.fromkeys((*rules, "INTERRUPT"), 1)))
        m.d.sync += [acts.eq(0), self.table_write.eq(0), self.refused.eq(self.write)]
        with m.If(self.write):
            with m.Switch(self.write_address[2:]):
                for name, (allowed, _) in rules.items():
                    with m.Case(OFFSETS[name] >> 2):
                        m.d.sync += [acts[name].eq(allowed), self.refused.eq(~allowed)]
                with m.Case(OFFSETS["INTERRUPT"] >> 2):
                    m.d.sync += [acts.INTERRUPT.eq(wanted < VECTORS),
                                 self.refused.eq(wanted >= VECTORS)]
                with m.Case(*_dwords(MSIX_TABLE, 16 * VECTORS)):
                    m.d.sync += [self.table_write.eq(1), self.refused.eq(0)]
        for name, (_, action) in rules.items():
            with m.If(acts[name]):
                m.d.sync += action
        with m.If(acts.ERROR):
            m.d.sync += failed.eq(0)
        with m.If(acts.INTERRUPT):
            m.d.comb += self.vectors.eq(1 << data[:3])

    def _read(self, m, values):
        name = self._identity.name.encode("ascii").ljust(NAME_SIZE, b"\0")
        words = {offset >> 2: values[register] for register, offset in OFFSETS.items()}
        words |= {NAME_OFFSET + n >> 2: int.from_bytes(name[n:n + 4], "little")
                  for n in range(0, NAME_SIZE, 4)}
        words |= {MSIX_PENDING >> 2: self.pending, (MSIX_PENDING >> 2) + 1: 0}
        m.d.comb += self.readable.eq(1)
        with m.Switch(self.read_address[2:]):
            for dword, value in words.items():
                with m.Case(dword):
                    m.d.comb += self.read_data.eq(value)
            with m.Case(*_dwords(MSIX_TABLE, 16 * VECTORS)):
                m.d.comb += self.read_data.eq(self.table_data)
            with m.Default():
                m.d.comb += self.readable.eq(0)


def _power(mask):
    """``mask + 1``, for a mask that is a power of two less one."""
    return Cat(C(1, 1), mask) & ~Cat(mask, C(0, 1))


def _dwords(offset, size):
    """Pattern of the dword numbers of an aligned range of bytes in BAR 0."""
    low = (size // 4).bit_length() - 1
    return (f"{offset // size:0{14 - low}b}" + "-" * low,)
