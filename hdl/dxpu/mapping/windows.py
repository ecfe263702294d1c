"""Windows and bus numbers of the downstream ports, as the operating system configures them.

Three forms for three readers: :class:`WindowFollower` shows all of them at once,
:class:`WindowMemory` one register of one port, :class:`WindowPairs` the windows of two ports.
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .types import ConfigUpdate, PortWindows

__all__ = ["WindowFollower", "WindowMemory", "WindowPairs", "check_rows"]


#: Byte offset of a register of a type 1 header to the fields of :class:`PortWindows` in it: name,
#: lowest bit in the field, lowest bit in the register, number of bits. The primary bus number and
#: the type bits of the windows are not used.
FIELDS = {
    0x04: (("io_enable", 0, 0, 1), ("memory_enable", 0, 1, 1)),
    0x18: (("secondary", 0, 8, 8), ("subordinate", 0, 16, 8)),
    0x1c: (("io_base", 0, 4, 4), ("io_limit", 0, 12, 4)),
    0x20: (("memory_base", 0, 4, 12), ("memory_limit", 0, 20, 12)),
    0x24: (("prefetch_base", 0, 4, 12), ("prefetch_limit", 0, 20, 12)),
    0x28: (("prefetch_base", 12, 0, 32),),
    0x2c: (("prefetch_limit", 12, 0, 32),),
    0x30: (("io_base", 4, 0, 16), ("io_limit", 4, 16, 16)),
}
#: The register of the bus numbers, which :class:`WindowPairs` leaves out.
BUS_NUMBERS = 0x18


def check_rows(name, count):
    """Return ``count`` if it is a possible number of rows, or raise :exc:`ValueError`."""
    if not isinstance(count, int) or not 1 <= count <= 32:
        raise ValueError(f"{name} must be an integer from 1 to 32, not {count!r}")
    return count


class WindowFollower(wiring.Component):
    """Copies the type 1 headers of the downstream ports from configuration updates.

    A register is in effect one cycle after its update. All are 0 after reset, as in the headers.
    Updates of the upstream port, of ports that do not exist and of other registers are ignored, and
    so are the type bits of the windows: all windows decode 32-bit I/O and 64-bit prefetchable
    memory.

    Ref: PCI-to-PCI Bridge Architecture 1.2, 3.2.4 and 3.2.5; PCIe Base 5.0, 7.5.1.3

    Parameters
    ----------
    ports : int
        Downstream ports, 1 to 32.

    Members
    -------
    config : In :class:`ConfigUpdate`
        Updates of configuration registers.
    windows : Out array of :class:`PortWindows`
        Windows and bus numbers of all ports.
    """

    def __init__(self, *, ports):
        self._ports = check_rows("ports", ports)
        super().__init__({"config": In(ConfigUpdate),
                          "windows": Out(data.ArrayLayout(PortWindows, ports))})

    def elaborate(self, platform):
        m = Module()
        config = self.config
        for n, w in enumerate(self.windows):
            for register, parts in FIELDS.items():
                with m.If(config.strobe & (config.function == n + 1)
                          & (config.register == register // 4)):
                    m.d.sync += [w[name][low:low + width].eq(config.value[bit:bit + width])
                                 for name, low, bit, width in parts]
        return m


class WindowMemory(wiring.Component):
    """Windows and bus numbers in distributed RAM, one register of one port at a time.

    For software, which would need a multiplexer of thousands of bits at a
    :class:`WindowFollower`. A register reads as updated from the cycle after its update on.

    Parameters
    ----------
    ports : int
        Downstream ports, 1 to 32.
    block : :class:`~dxpu.csr.Block`
        Registers of the host table.

    Members
    -------
    config : In :class:`ConfigUpdate`
        Updates of configuration registers.
    address : 16
        Byte address of a register of a row in the block.
    value : 32
        Value of that register, in the same cycle; unspecified for those that the manager writes.
    """

    #: Dword numbers of configuration registers that are stored whole.
    STORED = range(0x18 // 4, 0x34 // 4)

    def __init__(self, *, ports, block):
        self._ports, self._block = check_rows("ports", ports), block
        super().__init__({"config": In(ConfigUpdate), "address": In(16), "value": Out(32)})

    def elaborate(self, platform):
        m = Module()
        config, value = self.config, self.config.value
        port, row = Signal(range(self._ports)), Signal(range(self._ports))
        rows = next(e for e in self._block.entries if e.name == "row")
        selected = config.strobe & (config.function != 0) & (config.function <= self._ports)
        m.d.comb += [port.eq(config.function - 1), row.eq(self.address // rows.stride)]

        def store(name, shape, strobe, data, *more):
            """Value of a memory that is addressed by port, and by ``more``: the register to write
            and the register to read."""
            write_index, read_index = more or (C(0, 0), C(0, 0))
            m.submodules[name] = memory = Memory(
                shape=shape, depth=1 << len(Cat(write_index, port)), init=[])
            write, read = memory.write_port(), memory.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(selected & strobe), write.addr.eq(Cat(write_index, port)),
                write.data.eq(data), read.addr.eq(Cat(read_index, row)),
            ]
            return read.data

        # Two registers of the table may be halves of one configuration register, and one register
        # of the table may have parts of two.
        source = Signal(3)
        word = store("words", 32, (config.register >= self.STORED.start)
                     & (config.register < self.STORED.stop), value, config.register[:3], source)
        enables = store("enables", 2, config.register == 0x04 // 4, value[:2])
        io = store("io", 8, config.register == 0x1c // 4, Cat(value[4:8], value[12:16]))
        values = {
            "bus": (0x18, Cat(word[8:24], row, C(0, 14 - len(row)), enables)),
            "memory_base": (0x20, Cat(C(0, 20), word[4:16])),
            "memory_limit": (0x20, Cat(C(-1, 20), word[20:32])),
            "prefetch_base_low": (0x24, Cat(C(0, 20), word[4:16])),
            "prefetch_base_high": (0x28, word),
            "prefetch_limit_low": (0x24, Cat(C(-1, 20), word[20:32])),
            "prefetch_limit_high": (0x2c, word),
            "io_base": (0x30, Cat(C(0, 12), io[:4], word[:16])),
            "io_limit": (0x30, Cat(C(-1, 12), io[4:], word[16:])),
        }
        with m.Switch(self.address[:(rows.stride - 1).bit_length()]):
            for register in rows.registers:
                if register.name in values:
                    source_register, bits = values[register.name]
                    with m.Case(register.address):
                        m.d.comb += [source.eq(source_register // 4 & 7), self.value.eq(bits)]
        return m


class WindowPairs(wiring.Component):
    """Windows in distributed RAM, those of two ports at a time, for a search.

    A register reads as updated from the cycle after its update on. After reset all are cleared, one
    pair per cycle; updates are ignored until then.

    Parameters
    ----------
    ports : int
        Downstream ports, 1 to 32.

    Members
    -------
    count : int
        Pairs. If the number of ports is odd, the second port of the last pair has no windows.
    config : In :class:`ConfigUpdate`
        Updates of configuration registers.
    ready : Out(1)
        All registers are cleared.
    pair_index : In(range(count + 1))
        Number of a pair: ports ``2 * pair_index`` and ``2 * pair_index + 1``.
    pair : Out array of :class:`PortWindows`
        Windows of the pair, in the same cycle; bus numbers are 0. Unspecified from ``count`` on.
    """

    def __init__(self, *, ports):
        self._ports = check_rows("ports", ports)
        self.count = (ports + 1) // 2
        super().__init__({
            "config": In(ConfigUpdate),
            "ready": Out(1),
            "pair_index": In(range(self.count + 1)),
            "pair": Out(data.ArrayLayout(PortWindows, 2)),
        })

    def elaborate(self, platform):
        m = Module()
        config, port = self.config, Signal(6)
        place, cleared = Signal(range(self.count)), Signal.like(self.pair_index)
        m.d.comb += [
            port.eq(config.function - 1),
            self.ready.eq(cleared == self.count),
            place.eq(Mux(self.ready, port >> 1, cleared)),
        ]
        with m.If(~self.ready):
            m.d.sync += cleared.eq(cleared + 1)
        for n, w in enumerate(self.pair):
            selected = config.strobe & (port[0] == n) & (port < self._ports)
            for register, parts in FIELDS.items():
                if register == BUS_NUMBERS:
                    continue
                m.submodules[f"half{n}_{register:x}"] = memory = Memory(
                    shape=sum(width for *_, width in parts), depth=self.count, init=[])
                write, read = memory.write_port(), memory.read_port(domain="comb")
                m.d.comb += [
                    write.en.eq(~self.ready | selected & (config.register == register // 4)),
                    write.addr.eq(place),
                    write.data.eq(Mux(self.ready, Cat(
                        config.value[bit:bit + width] for *_, bit, width in parts), 0)),
                    read.addr.eq(self.pair_index),
                    Cat(w[name][low:low + width] for name, low, _, width in parts).eq(read.data),
                ]
        return m
