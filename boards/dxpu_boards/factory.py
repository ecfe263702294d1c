"""The factory record of a board: from the configuration flash to registers.

The part fixes the pins, through which it reads its bitstream. MOSI, MISO and chip select are
ordinary pins once the part runs; the clock, MCLK, is no pin, and only the primitive USRMCLK drives
it. Ref: Lattice FPGA-TN-02039 (sysCONFIG), FPGA-SC-02032 and similar (pinout); Project Trellis'
data base agrees. Some platforms of amaranth-boards have MOSI and MISO swapped, so their `spi_flash`
is not used here.
"""

from amaranth import *
from amaranth.build import Attrs, Pins, PinsN, Resource, Subsignal
from amaranth.lib import io

from dxpu.bringup import Takes
from dxpu.factory import DEFAULT_MAC, FactoryReader, FactoryState, NodeKey

__all__ = ["PINS", "RESOURCE", "factory_of", "give_pair_key", "give_record", "node_key_of"]

#: Chip select, MOSI, MISO by package; then WP# and HOLD# of the flash, if connected to the part:
#: they are held high during a reading.
PINS = {
    "BG256": ("N8", "T8", "T7", ""),
    "BG381": ("R2", "W2", "V2", "Y2 W1"),
    "BG554": ("AA2", "AE2", "AD2", "AF2 AE1"),
}
RESOURCE = "configuration_flash"


def factory_of(m, platform, board, file, hz):
    """Make the reader of a board's record, with its pins, and show the result in the registers
    ``file``.

    On a board without a record the registers show its absence.

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


def node_key_of(m, reader, *, pair):
    """Make the copy of the keys that ``reader`` has found, with that of the ``pair`` or without.

    Returns
    -------
    :class:`~dxpu.factory.NodeKey`
    """
    m.submodules.node_key = key = NodeKey(pair=pair)
    m.d.comb += [
        Value.cast(key.state).eq(Value.cast(reader.state)),
        reader.key_address.eq(key.key_address), key.key.eq(reader.key),
    ]
    return key


def give_pair_key(m, reader, key, alone):
    """Give the key of the pair to ``alone``, a :class:`~dxpu.bringup.StandAlone`, and say whom it
    takes. A record that may have had a key, and cannot be read, lets nobody in."""
    m.d.comb += [key.pair_column.eq(alone.column), alone.key_column.eq(key.pair_key_column),
                 alone.takes.eq(Takes.NOBODY)]
    with m.If(key.valid):
        with m.Switch(reader.state):
            with m.Case(FactoryState.ABSENT):
                m.d.comb += alone.takes.eq(Takes.ANYONE)
            with m.Case(FactoryState.VALID):
                m.d.comb += alone.takes.eq(Mux(reader.has_key, Takes.KEY, Takes.ANYONE))


def give_record(m, reader, key, port, *, build):
    """Give what ``reader`` has found, and ``key``, its :class:`~dxpu.factory.NodeKey`, to the
    ``port`` of a proxy with management (:class:`~dxpu.proxy.management.FactoryPort`); ``build`` is
    the identity of the bitstream."""
    m.d.comb += [
        key.column.eq(port.column), port.key_column.eq(key.key_column),
        port.valid.eq(key.valid), port.keyed.eq(reader.has_key),
        port.mac.eq(reader.mac), port.serial.eq(reader.serial), port.build.eq(build),
    ]


def _pins(m, platform, reader):
    """Request the pins, driven only during a reading: otherwise JTAG may use the flash."""
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
