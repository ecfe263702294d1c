"""Windows and bus numbers of the downstream ports, as the operating system configures them.

Two forms for two kinds of readers: :class:`WindowFollower` shows all of them at once,
:class:`WindowMemory` those of one port.
"""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from .types import ConfigUpdate, PortWindows

__all__ = ["WindowFollower", "WindowMemory", "check_rows", "register_values"]


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


def check_rows(name, count):
    """Return ``count`` if it is a possible number of rows, or raise :exc:`ValueError`."""
    if not isinstance(count, int) or not 1 <= count <= 32:
        raise ValueError(f"{name} must be an integer from 1 to 32, not {count!r}")
    return count


class WindowFollower(wiring.Component):
    """Copies the type 1 headers of the ports from configuration updates.

    A register is in effect one cycle after its update. All are 0 after reset, as in the headers.
    Updates of ports that do not exist and of other registers are ignored, and so are the type bits
    of the windows: all windows decode 32-bit I/O and 64-bit prefetchable memory.

    Ref: PCI-to-PCI Bridge Architecture 1.2, 3.2.4 and 3.2.5; PCIe Base 5.0, 7.5.1.3

    Parameters
    ----------
    ports : int
        Downstream ports, 1 to 32.

    Members
    -------
    config : In :class:`ConfigUpdate`
        Updates of configuration registers.
    windows, upstream_windows : Out array of :class:`PortWindows`, Out :class:`PortWindows`
        Windows and bus numbers of all downstream ports, and of the upstream port.
    """

    def __init__(self, *, ports):
        self._ports = check_rows("ports", ports)
        super().__init__({"config": In(ConfigUpdate),
                          "windows": Out(data.ArrayLayout(PortWindows, ports)),
                          "upstream_windows": Out(PortWindows)})

    def elaborate(self, platform):
        m = Module()
        config = self.config
        for function, w in enumerate((self.upstream_windows, *self.windows)):
            for register, parts in FIELDS.items():
                with m.If(config.strobe & (config.function == function)
                          & (config.register == register // 4)):
                    m.d.sync += [w[name][low:low + width].eq(config.value[bit:bit + width])
                                 for name, low, bit, width in parts]
        return m


class WindowMemory(wiring.Component):
    """Windows and bus numbers in distributed RAM, those of one port at a time: for a search, and
    for software, which would need a multiplexer of thousands of bits at a :class:`WindowFollower`.

    A register reads as updated from the cycle after its update on. After reset all are cleared, one
    port per cycle; updates are ignored until then.

    Parameters
    ----------
    ports : int
        Downstream ports, 1 to 32.

    Members
    -------
    config : In :class:`ConfigUpdate`
        Updates of configuration registers.
    ready : Out(1)
        All registers are cleared.
    port : In(range(ports + 1))
        Number of a port.
    windows : Out :class:`PortWindows`
        Windows and bus numbers of the port, in the same cycle. Unspecified from ``ports`` on.
    """

    def __init__(self, *, ports):
        self._ports = check_rows("ports", ports)
        super().__init__({
            "config": In(ConfigUpdate),
            "ready": Out(1),
            "port": In(range(ports + 1)),
            "windows": Out(PortWindows),
        })

    def elaborate(self, platform):
        m = Module()
        config, port = self.config, Signal(6)
        cleared, written = Signal.like(self.port), Signal(range(self._ports))
        selected = config.strobe & (port < self._ports)
        m.d.comb += [
            port.eq(config.function - 1),
            self.ready.eq(cleared == self._ports),
            written.eq(Mux(self.ready, port, cleared)),
        ]
        with m.If(~self.ready):
            m.d.sync += cleared.eq(cleared + 1)
        for register, parts in FIELDS.items():
            m.submodules[f"register_{register:x}"] = memory = Memory(
                shape=sum(width for *_, width in parts), depth=self._ports, init=[])
            write, read = memory.write_port(), memory.read_port(domain="comb")
            m.d.comb += [
                write.en.eq(~self.ready | selected & (config.register == register // 4)),
                write.addr.eq(written),
                write.data.eq(Mux(self.ready, Cat(
                    config.value[bit:bit + width] for *_, bit, width in parts), 0)),
                read.addr.eq(self.port),
                Cat(self.windows[name][low:low + width]
                    for name, low, _, width in parts).eq(read.data),
            ]
        return m


def register_values(w, row):
    """Values of the registers of a host table's row that show the windows ``w`` of port ``row``, by
    name (:func:`~dxpu.mapping.host_block`)."""
    return {
        "bus": Cat(w.secondary, w.subordinate, row, C(0, 14 - len(row)), w.io_enable,
                   w.memory_enable),
        "memory_base": Cat(C(0, 20), w.memory_base),
        "memory_limit": Cat(C(-1, 20), w.memory_limit),
        "prefetch_base_low": Cat(C(0, 20), w.prefetch_base[:12]),
        "prefetch_base_high": w.prefetch_base[12:],
        "prefetch_limit_low": Cat(C(-1, 20), w.prefetch_limit[:12]),
        "prefetch_limit_high": w.prefetch_limit[12:],
        "io_base": Cat(C(0, 12), w.io_base),
        "io_limit": Cat(C(-1, 12), w.io_limit),
    }
