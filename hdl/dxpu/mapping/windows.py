"""Windows and bus numbers of the downstream ports, as the operating system configures them."""

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from dxpu.mapping.types import ConfigUpdate, PortWindows

__all__ = ["WindowFollower", "check_rows"]


def check_rows(name, count):
    """Return ``count`` if it is a possible number of rows, or raise :exc:`ValueError`."""
    if not isinstance(count, int) or not 1 <= count <= 32:
        raise ValueError(f"{name} must be an integer from 1 to 32, not {count!r}")
    return count


class WindowFollower(wiring.Component):
    """Follows the type 1 headers of the downstream ports, one register at a time.

    A register is in effect one cycle after its update. Registers are 0 after reset, as the
    headers'. Updates of the upstream port, of ports that do not exist and of other registers are
    ignored; so are the windows' type bits (all windows decode fully: 32-bit I/O, 64-bit
    prefetchable).

    Ref: PCI-to-PCI Bridge Architecture 1.2, 3.2.4 and 3.2.5; PCIe Base 5.0, 7.5.1.3

    Parameters
    ----------
    ports : int
        Downstream ports, 1 to 32.

    Members
    -------
    config : In :class:`ConfigUpdate`
    windows : Out array of :class:`PortWindows`
    """

    def __init__(self, *, ports):
        self._ports = check_rows("ports", ports)
        super().__init__({"config": In(ConfigUpdate),
                          "windows": Out(data.ArrayLayout(PortWindows, ports))})

    def elaborate(self, platform):
        m = Module()
        value = self.config.value
        for n in range(self._ports):
            w = self.windows[n]
            with m.If(self.config.strobe & (self.config.function == n + 1)):
                with m.Switch(self.config.register):
                    with m.Case(0x04 // 4):  # Command
                        m.d.sync += [w.io_enable.eq(value[0]), w.memory_enable.eq(value[1])]
                    with m.Case(0x18 // 4):  # Bus numbers; the primary one is not used
                        m.d.sync += [w.secondary.eq(value[8:16]), w.subordinate.eq(value[16:24])]
                    with m.Case(0x1c // 4):  # I/O base and limit; secondary status above
                        m.d.sync += [w.io_base[:4].eq(value[4:8]), w.io_limit[:4].eq(value[12:16])]
                    with m.Case(0x20 // 4):
                        m.d.sync += [w.memory_base.eq(value[4:16]),
                                     w.memory_limit.eq(value[20:32])]
                    with m.Case(0x24 // 4):
                        m.d.sync += [w.prefetch_base[:12].eq(value[4:16]),
                                     w.prefetch_limit[:12].eq(value[20:32])]
                    with m.Case(0x28 // 4):
                        m.d.sync += w.prefetch_base[12:].eq(value)
                    with m.Case(0x2c // 4):
                        m.d.sync += w.prefetch_limit[12:].eq(value)
                    with m.Case(0x30 // 4):
                        m.d.sync += [w.io_base[4:].eq(value[:16]), w.io_limit[4:].eq(value[16:])]
        return m
