"""The factory record of a board: from the flash that the FPGA is configured from, to registers.

The pins are fixed by the part, which reads its bitstream through them: MOSI, MISO and chip select
are pins like others once it runs, and the clock, MCLK, is none; only the primitive USRMCLK reaches
it. Ref: Lattice FPGA-TN-02039 (sysCONFIG), FPGA-SC-02032 and its like (pinout); Project Trellis'
data base has the same. Some of amaranth-boards' platforms have MOSI and MISO the other way round,
so this does without their `spi_flash`.
"""

from amaranth import *
from amaranth.build import Attrs, Pins, PinsN, Resource, Subsignal
from amaranth.lib import io

from dxpu.factory import DEFAULT_MAC, FactoryReader, FactoryState

__all__ = ["PINS", "RESOURCE", "factory_of"]

#: Chip select, MOSI, MISO by package; then WP# and HOLD# of the flash, if they are at the part:
#: they are held high while it is read.
PINS = {
    "BG256": ("N8", "T8", "T7", ""),
    "BG381": ("R2", "W2", "V2", "Y2 W1"),
    "BG554": ("AA2", "AE2", "AD2", "AF2 AE1"),
}
RESOURCE = "configuration_flash"


def factory_of(m, platform, board, file, hz):
    """Make the reader of a board's record, with its pins, and show what it found in the registers
    ``file``. On a board without a record, these say so.

    Returns
    -------
    FactoryReader or None
    """
    low, high = file.mac_low, file.mac_high
    if board.record is None:
        default = Const(int.from_bytes(DEFAULT_MAC, "big"), 48)
        m.d.comb += [Value.cast(file.factory.state).eq(FactoryState.ABSENT.value),
                     Cat(low.value, high.value).eq(default)]
        return None
    m.submodules.factory = reader = FactoryReader(address=board.record, hz=hz)
    _pins(m, platform, reader)
    m.d.comb += [
        reader.again.eq(file.factory.again), file.factory.key.eq(reader.has_key),
        Value.cast(file.factory.state).eq(Value.cast(reader.state)),
        Cat(low.value, high.value).eq(reader.mac), file.serial.value.eq(reader.serial),
        file.fingerprint.value.eq(reader.fingerprint),
    ]
    return reader


def _pins(m, platform, reader):
    """Driven only while a record is read: otherwise JTAG may have the flash."""
    cs, copi, cipo, high = PINS[platform.package]
    platform.add_resources([Resource(
        RESOURCE, 0, Subsignal("cs", PinsN(cs, dir="oe")), Subsignal("copi", Pins(copi, dir="oe")),
        Subsignal("cipo", Pins(cipo, dir="i")),
        *([Subsignal("high", Pins(high, dir="oe"))] if high else []),
        Attrs(IO_TYPE="LVCMOS33", PULLMODE="UP"))])
    pins = platform.request(RESOURCE, 0, dir="-")
    for name, value in (("cs", reader.cs), ("copi", reader.copi), ("high", Const(-1, 2))):
        if hasattr(pins, name):
            m.submodules[f"flash_{name}"] = pin = io.Buffer("o", getattr(pins, name))
            m.d.comb += [pin.o.eq(value), pin.oe.eq(reader.drive)]
    m.submodules.flash_cipo = cipo = io.Buffer("i", pins.cipo)
    m.d.comb += reader.cipo.eq(cipo.i)
    m.submodules.flash_clock = Instance(
        "USRMCLK", i_USRMCLKI=reader.sck, i_USRMCLKTS=~reader.drive)
