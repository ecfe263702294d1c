"""Registers as data, from which decoder, software constants and documents are made.

A :class:`Block` is what one register port decodes: registers, and rows of registers at a stride. An
:class:`AddressMap` places blocks in the 64 KiB space of a proxy. Nothing here needs Amaranth.

Every register is 32 bits at a byte address that is a multiple of 4. Names are lower-case
identifiers; a *path* such as ``host_table.row[3].bus`` names a register from outside.
"""

import enum
import re
from dataclasses import dataclass, field

__all__ = ["Access", "AddressMap", "Block", "Field", "Placed", "Register", "Rows", "constants",
           "word"]


class Access(enum.Enum):
    """Owner of the bits of a field, and the effect of reading and writing them."""

    #: Value of the hardware; writes have no effect.
    RO = "ro"
    #: Stored in the register file; software reads what it wrote.
    RW = "rw"
    #: Sticky event: hardware sets bits, writing 1 clears them. In the same cycle setting wins.
    W1C = "w1c"
    #: Bits written as 1 are 1 for one cycle; reads as 0.
    PULSE = "pulse"
    #: The hardware gets each write; reads as 0, for what nobody may read back.
    WO = "wo"
    #: Stored in the hardware, which gets each write and decides about its effect.
    HW = "hw"
    #: Read only, from a memory of the hardware. All fields of a register or none; in rows only.
    MEM = "mem"
    #: As HW, in a memory of the hardware. All fields of a register or none; in rows only.
    MEM_HW = "mem_hw"
    #: Reads as its reset value.
    CONST = "const"

    @property
    def writable(self):
        """Whether a write can have an effect."""
        return self in (Access.RW, Access.W1C, Access.PULSE, Access.WO, Access.HW, Access.MEM_HW)

    @property
    def stored(self):
        """Whether the bits are in a memory of the hardware."""
        return self in (Access.MEM, Access.MEM_HW)


def _check_name(what, name):
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(f"{what} name must be a lower-case identifier, not {name!r}")


def _check_address(address):
    if not isinstance(address, int) or address < 0 or address % 4:
        raise ValueError(f"Address must be a multiple of 4, not {address!r}")


def _pow2(n):
    return 1 << max(n - 1, 0).bit_length()


@dataclass(frozen=True)
class Field:
    """Bits of a register.

    Parameters
    ----------
    name : str
    width : int
        1 to 32.
    access : Access or its value as a string
    reset : int
        Value after reset (RW, W1C, CONST); no meaning for the others.
    doc : str
        What the bits mean; one sentence or more.
    offset : int
        Least significant bit; by default right above the field before.
    values : enumeration class
        Meaning of the values, for documentation and constants.
    """

    name: str
    width: int = 1
    access: Access | str = Access.RW
    reset: int = 0
    doc: str = ""
    offset: int | None = None
    values: type | None = None

    def __post_init__(self):
        _check_name("Field", self.name)
        object.__setattr__(self, "access", Access(self.access))
        if not isinstance(self.width, int) or not 1 <= self.width <= 32:
            raise ValueError(f"Field width must be 1 to 32, not {self.width!r}")
        if not 0 <= self.reset < 1 << self.width:
            raise ValueError(f"Reset of field {self.name} must fit {self.width} bits, "
                             f"not {self.reset!r}")

    @property
    def mask(self):
        """Bits of the register that belong to the field."""
        return (1 << self.width) - 1 << self.offset


@dataclass(frozen=True)
class Register:
    """A 32-bit register.

    Parameters
    ----------
    name : str
    fields : sequence of Field
        From the least significant bit up.
    doc : str
    address : int
        Byte address in its block or row; by default right behind the register before.
    """

    name: str
    fields: tuple
    doc: str = ""
    address: int | None = None

    def __post_init__(self):
        _check_name("Register", self.name)
        if self.address is not None:
            _check_address(self.address)
        placed, used, next_bit = [], 0, 0
        for f in self.fields:
            offset = next_bit if f.offset is None else f.offset
            f = Field(f.name, f.width, f.access, f.reset, f.doc, offset, f.values)
            next_bit = offset + f.width
            if next_bit > 32 or used & f.mask:
                raise ValueError(f"Field {f.name} does not fit in register {self.name}")
            used |= f.mask
            placed.append(f)
        if len({f.name for f in placed}) != len(placed):
            raise ValueError(f"Register {self.name} has two fields of one name")
        if len({f.access for f in placed if any(g.access.stored for g in placed)}) > 1:
            raise ValueError(f"Register {self.name} must be in a memory as a whole or not at all")
        object.__setattr__(self, "fields", tuple(placed))

    @property
    def writable(self):
        """Whether any field can be written."""
        return any(f.access.writable for f in self.fields)

    @property
    def stored(self):
        """Whether the register is in a memory of the hardware."""
        return any(f.access.stored for f in self.fields)

    @property
    def reset(self):
        """Value of the register after reset, without the bits of the hardware."""
        return sum(f.reset << f.offset for f in self.fields)

    def pack(self, **values):
        """Register value with the named fields set and all others 0."""
        fields, result = {f.name: f for f in self.fields}, 0
        for name, value in values.items():
            if name not in fields:
                raise ValueError(f"Register {self.name} has no field {name}")
            f, value = fields[name], int(value)
            if not 0 <= value < 1 << f.width:
                raise ValueError(f"Field {name} must fit {f.width} bits, not {value!r}")
            result |= value << f.offset
        return result

    def unpack(self, value):
        """Fields of a register value, as a dict."""
        return {f.name: (value & f.mask) >> f.offset for f in self.fields}


def word(name, access, doc="", *, reset=0, address=None):
    """Register with one field ``value`` of 32 bits."""
    return Register(name, (Field("value", 32, access, reset, doc),), doc, address)


@dataclass(frozen=True)
class Rows:
    """``count`` equal groups of registers, ``stride`` bytes apart (default: the next power of two).

    Registers in it have addresses from 0; ``address`` is that of row 0.
    """

    name: str
    count: int
    registers: tuple
    doc: str = ""
    stride: int | None = None
    address: int | None = None

    def __post_init__(self):
        _check_name("Rows", self.name)
        if not isinstance(self.count, int) or self.count < 1:
            raise ValueError(f"Row count must be 1 or more, not {self.count!r}")
        placed, end = _place(self.registers, f"rows {self.name}")
        stride = _pow2(end) if self.stride is None else self.stride
        _check_address(stride)
        if stride < end:
            raise ValueError(f"Stride of rows {self.name} must be at least {end}, not {stride!r}")
        if any(r.stored for r in placed) and stride != _pow2(stride):
            raise ValueError(f"Stride of rows {self.name} in a memory must be a power of two, "
                             f"not {stride!r}")
        object.__setattr__(self, "registers", tuple(placed))
        object.__setattr__(self, "stride", stride)

    @property
    def span(self):
        """Bytes of all rows, rounded up to a power of two."""
        return _pow2(self.stride * self.count)


@dataclass(frozen=True)
class Placed:
    """A register at its address; decoders, constants and documents iterate over these."""

    address: int
    register: Register
    rows: Rows | None = None
    index: int = 0

    @property
    def path(self):
        """Name from the block's point of view, such as ``control`` or ``row[3].bus``."""
        name = self.register.name
        return f"{self.rows.name}[{self.index}].{name}" if self.rows else name


def _place(entries, where):
    """Give every entry its address; returns the entries and the end of the last."""
    placed, next_address, spans = [], 0, []
    for e in entries:
        address = next_address if e.address is None else e.address
        if isinstance(e, Rows):
            size = e.stride * e.count
            e = Rows(e.name, e.count, e.registers, e.doc, e.stride, address)
        else:
            size = 4
            e = Register(e.name, e.fields, e.doc, address)
        if any(address < end and start < address + size for start, end in spans):
            raise ValueError(f"Entry {e.name} of {where} overlaps another")
        spans.append((address, address + size))
        next_address = address + size
        placed.append(e)
    if len({e.name for e in placed}) != len(placed):
        raise ValueError(f"Two entries of {where} have one name")
    return placed, max((end for _, end in spans), default=0)


@dataclass(frozen=True)
class Block:
    """Registers behind one register port.

    Parameters
    ----------
    name : str
    entries : sequence of Register and Rows
        Placed one behind the other unless they bring an address.
    doc : str
    size : int
        Bytes of address space, a power of two; by default the smallest that fits.
    """

    name: str
    entries: tuple
    doc: str = ""
    size: int | None = None
    placed: tuple = field(default=(), init=False, compare=False, repr=False)

    def __post_init__(self):
        _check_name("Block", self.name)
        entries, end = _place(self.entries, f"block {self.name}")
        size = max(_pow2(end), 4) if self.size is None else self.size
        if size < end or size != _pow2(size) or size > 0x10000:
            raise ValueError(f"Size of block {self.name} must be a power of two from {end} "
                             f"to 65536, not {size!r}")
        object.__setattr__(self, "entries", tuple(entries))
        object.__setattr__(self, "size", size)
        flat = []
        for e in entries:
            if isinstance(e, Rows):
                if any(r.stored for r in e.registers) and e.address % e.span:
                    raise ValueError(f"Address of rows {e.name} in a memory must be a multiple of "
                                     f"{e.span:#x}, not {e.address:#x}")
                flat += [Placed(e.address + n * e.stride + r.address, r, e, n)
                         for n in range(e.count) for r in e.registers]
            elif e.stored:
                raise ValueError(f"Register {e.name} must be in rows to be in a memory")
            else:
                flat.append(Placed(e.address, e))
        object.__setattr__(self, "placed", tuple(flat))
        object.__setattr__(self, "_by_path", {p.path: p for p in flat})

    def find(self, path):
        """The :class:`Placed` register of that path."""
        if path not in self._by_path:
            raise KeyError(f"Block {self.name} has no register {path}")
        return self._by_path[path]

    def address(self, path):
        """Byte address of the register of that path, from the start of the block."""
        return self.find(path).address


@dataclass(frozen=True)
class AddressMap:
    """Blocks in an address space of 64 KiB.

    Parameters
    ----------
    name : str
    blocks : dict from name to (base address, Block)
        A base must be a multiple of its block's size. One block may appear under several names.
    doc : str
    """

    name: str
    blocks: dict
    doc: str = ""

    def __post_init__(self):
        _check_name("Map", self.name)
        spans = []
        for name, (base, block) in self.blocks.items():
            _check_name("Block", name)
            end = base + block.size
            if base < 0 or base % block.size or end > 0x10000:
                raise ValueError(f"Base of block {name} must be a multiple of {block.size:#x} "
                                 f"below 65536, not {base!r}")
            if any(base < e and s < end for s, e in spans):
                raise ValueError(f"Block {name} of map {self.name} overlaps another")
            spans.append((base, end))

    @property
    def windows(self):
        """Dict from name to (base, size), as :class:`dxpu.csr.RegisterMux` takes it."""
        return {name: (base, block.size) for name, (base, block) in self.blocks.items()}

    def find(self, path):
        """The :class:`Placed` register of a path such as ``host_table.row[3].bus``, and its base
        address."""
        name, _, rest = path.partition(".")
        if name not in self.blocks:
            raise KeyError(f"Map {self.name} has no block {name}")
        base, block = self.blocks[name]
        return block.find(rest), base

    def address(self, path):
        """Byte address of the register of that path."""
        placed, base = self.find(path)
        return base + placed.address


def constants(what, *, base=0, prefix=""):
    """Constants for software as a dict from upper-case names to integers.

    ``<REGISTER>`` is an address, ``<REGISTER>_<FIELD>_SHIFT`` and ``_MASK`` its fields (the mask in
    place), ``<REGISTER>_<FIELD>_<VALUE>`` the meaning of values; rows give the address of row 0,
    ``<ROWS>_COUNT`` and ``<ROWS>_STRIDE``. In an :class:`AddressMap` the block's name comes first.
    """
    result = {}
    if isinstance(what, AddressMap):
        for name, (at, block) in what.blocks.items():
            result.update(constants(block, base=base + at, prefix=f"{prefix}{name.upper()}_"))
        return result
    for e in what.entries:
        rows = isinstance(e, Rows)
        if rows:
            result[f"{prefix}{e.name.upper()}_COUNT"] = e.count
            result[f"{prefix}{e.name.upper()}_STRIDE"] = e.stride
        for p in what.placed:
            if p.index or (p.rows is not e if rows else p.register is not e):
                continue
            name = prefix + "_".join(filter(None, [rows and e.name, p.register.name])).upper()
            result[name] = base + p.address
            for f in p.register.fields:
                result[f"{name}_{f.name.upper()}_SHIFT"] = f.offset
                result[f"{name}_{f.name.upper()}_MASK"] = f.mask
                for v in f.values or ():
                    result[f"{name}_{f.name.upper()}_{v.name}"] = v.value
    return result
