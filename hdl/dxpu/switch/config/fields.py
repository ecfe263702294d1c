"""Registers of configuration spaces as plain data, and memory images made from them.

Access of a field: ``RO`` reads its reset value, or a value written by hardware. ``RW``. ``RW1C`` is
cleared by writing ones. ``W1`` reads 0, and writing a one has an effect. ``LIVE`` is read-only and
follows the hardware (see the names in :class:`~dxpu.switch.config_space.ConfigSpace`). A reset
value ``"port"`` is the number of the downstream port (0 for the upstream port), ``"slot"`` that
number plus one.

Ref: PCIe Base 5.0, 7.4 (register attributes)
"""

from dataclasses import dataclass

__all__ = ["AER", "DPC", "FUNCTION_DWORDS", "HIGH", "HIGH_DWORDS", "HIGH_KEPT", "STICKY",
           "STICKY_DPC", "Field", "FunctionMap", "Register", "kept_at", "render_map"]

#: Dwords of a function in the memory. Configuration space outside the memory reads 0 and ignores
#: writes.
FUNCTION_DWORDS = 128

#: First dword and number of dwords of the upper configuration space; their place in the memory,
#: where no capability below 100h is.
HIGH, HIGH_DWORDS, HIGH_KEPT = 0x200 // 4, 16, 0xC0 // 4

#: Offsets of the capabilities with sticky bits.
AER, DPC = 0x100, 0x170
#: Dwords with sticky bits, which survive a reset of the downstream functions by the upstream port
#: (7.4): the registers of AER; with DPC its status and Error Source ID.
STICKY = range(AER // 4 + 1, AER // 4 + 18)
STICKY_DPC = DPC // 4 + 2


@dataclass(frozen=True)
class Field:
    """Bits ``lsb`` to ``lsb + width - 1`` of a register."""

    name: str
    lsb: int
    width: int = 1
    access: str = "RO"
    reset: int | str = 0
    doc: str = ""

    @property
    def mask(self) -> int:
        """Mask of the field's bits, in place."""
        return ((1 << self.width) - 1) << self.lsb

    def value(self, port: int | None) -> int:
        """Reset value, in place, in the function of downstream port ``port``.

        ``None`` leaves out values that depend on the port.
        """
        reset = self.reset
        if isinstance(reset, str):
            reset = 0 if port is None else {"port": port, "slot": port + 1}[reset]
        return reset << self.lsb & self.mask


@dataclass(frozen=True)
class Register:
    """A register of 8, 16 or 32 bits at a byte offset."""

    offset: int
    bits: int
    name: str
    fields: tuple[Field, ...]

    def mask(self, access: str) -> int:
        """Mask of the bits with this kind of access."""
        return sum(f.mask for f in self.fields if f.access == access)


def kept_at(dword: int) -> int | None:
    """Dword of the memory for a dword of configuration space; ``None`` outside the memory."""
    if HIGH <= dword < HIGH + HIGH_DWORDS:
        return HIGH_KEPT + dword - HIGH
    hidden = dword >= FUNCTION_DWORDS or HIGH_KEPT <= dword < HIGH_KEPT + HIGH_DWORDS
    return None if hidden else dword


class FunctionMap:
    """Registers of one function, and images made from them, as dwords of the memory."""

    def __init__(self, kind: str, registers: tuple[Register, ...]):
        self.kind = kind
        self.registers = registers
        self.by_name = {r.name: r for r in registers}

    def _image(self, value) -> list[int]:
        image = [0] * FUNCTION_DWORDS
        for r in self.registers:
            if (place := kept_at(r.offset // 4)) is None:
                raise ValueError(f"{r.name} at {r.offset:03X}h has no place in the memory")
            image[place] |= value(r) << 8 * (r.offset % 4)
        return image

    def access_image(self, access: str) -> list[int]:
        """Mask of the bits with this kind of access, for each dword."""
        return self._image(lambda r: r.mask(access))

    def reset_image(self, port: int | None = None) -> list[int]:
        """Each dword after reset, live fields as 0; see :meth:`Field.value`."""
        return self._image(lambda r: sum(f.value(port) for f in r.fields if f.access != "LIVE"))

    def dword(self, register: str) -> int:
        """Number of the dword with ``register``."""
        return self.by_name[register].offset // 4

    def sticky(self, dword: int) -> bool:
        """Whether a reset of the functions preserves the dword."""
        return dword in STICKY or dword == STICKY_DPC and "DPC Status" in self.by_name

    def pack(self, register: str, values: dict):
        """The dword of ``register`` with these fields, numbers or signals; all others 0."""
        return sum(value << self.bit(register, name) for name, value in values.items())

    def bit(self, register: str, name: str) -> int:
        """Position of field ``name`` in the dword with ``register``."""
        r = self.by_name[register]
        return 8 * (r.offset % 4) + next(f.lsb for f in r.fields if f.name == name)


def render_map(fmap: FunctionMap, title: str, source: str) -> str:
    """Register page of a function described in ``source``, in Markdown."""
    out = [f"# Configuration space: {title}", "",
           f"Made from `hdl/dxpu/{source}`; edit that, not this. Everything that is not "
           "listed reads 0 and ignores writes.", ""]
    for r in sorted(fmap.registers, key=lambda r: r.offset):
        out += [f"## {r.offset:03X}h {r.name} ({r.bits} bits)", "",
                "| bits | field | access | reset | |", "|---|---|---|---|---|"]
        for f in sorted(r.fields, key=lambda f: -f.lsb):
            bits = f"{f.lsb + f.width - 1}:{f.lsb}" if f.width > 1 else f"{f.lsb}"
            reset = {"port": "port", "slot": "port + 1"}.get(
                f.reset, f"{f.reset:#x}" if isinstance(f.reset, int) else "")
            reset = "-" if f.access == "LIVE" else reset
            out.append(f"| {bits} | {f.name} | {f.access} | {reset} | {f.doc} |")
        out.append("")
    return "\n".join(out)
