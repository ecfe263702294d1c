"""Configuration spaces against literals of the specification: a bit that moved fails here.

The design's register maps make gateware, golden model and register pages, so that none of them
sees a mistake in the map; :mod:`pcie_literals` was typed in from the text.
"""

import pytest
from dxpu.switch import Identity
from dxpu.switch.config.identity import PlaceholderOptions, SlotOptions
from dxpu.switch.config.placeholder_map import HELD, HELD_DWORDS, placeholder_map
from dxpu.switch.config.port_map import DOWNSTREAM, UPSTREAM, function_map
from dxpu.switch.config_space import ConfigSpace
from dxpu_model.switch_function import GoldenFunction
from tests.support.pcie_literals import LAYOUTS
from tests.support.testbench import simulate

EVERYTHING = SlotOptions(surprise=False, attention_indicator=True, power_controller=True,
                         command_completed=True, dpc=True)
IDENTITIES = {name: Identity() for name in LAYOUTS} | {
    "all options": Identity(slot=EVERYTHING), "placeholder": Identity(
        placeholder=PlaceholderOptions())}
KINDS = {"upstream": UPSTREAM, "downstream": DOWNSTREAM, "all options": DOWNSTREAM}


def described(name):
    identity = IDENTITIES[name]
    return function_map(KINDS[name], identity) if name in KINDS else placeholder_map(identity)


def golden(name):
    return GoldenFunction(None if name == "upstream" else 0, described(name), IDENTITIES[name])


def words(name):
    """By byte offset: bits that can be written, that ones clear, and the value after reset with
    the mask of the bits that have one here."""
    found = {offset: [0, 0, 0, 0xFFFF_FFFF] for offset in range(0, 0x1000, 4)}
    for f in LAYOUTS[name]:
        word, mask = found[f.offset], (1 << f.width) - 1 << f.lsb
        word[0] |= mask if f.access == "RW" else 0
        word[1] |= mask if f.access == "RW1C" else 0
        if f.reset is None:
            word[3] &= ~mask
        else:
            word[2] |= f.reset << f.lsb
    return found


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_field_is_where_the_specification_has_it(name):
    """Those and no others, each with its place, width, access and reset value."""
    spoken = {"LIVE": "RO"}
    here = {(f.name, r.offset & ~3, f.lsb + 8 * (r.offset & 3)):
            (f.width, spoken.get(f.access, f.access),
             f.value(0) >> f.lsb) for r in described(name).registers for f in r.fields}
    assert len(LAYOUTS[name]) == len({(f.offset, f.lsb) for f in LAYOUTS[name]})
    for f in LAYOUTS[name]:
        place = f.name, f.offset, f.lsb
        assert place in here, f"{f.name} is not at {f.offset:03X}h, bit {f.lsb}"
        width, access, reset = here.pop(place)
        assert (width, access) == (f.width, f.access), f.name
        # What follows the hardware has no reset value in the description.
        assert reset == f.reset or f.reset is None or access == "RO" and golden(name).get(
            *at(name, f)) == f.reset, f.name
    assert not here, "not in the literals"


def at(name, literal):
    """Names of register and field of a literal."""
    return next((r.name, f.name) for r in described(name).registers for f in r.fields
                if (f.name, r.offset & ~3, f.lsb + 8 * (r.offset & 3))
                == (literal.name, literal.offset, literal.lsb))


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_golden_space_reads_and_writes_as_the_literals_say(name):
    model = golden(name)
    for offset, (writable, clears, reset, known) in words(name).items():
        assert model.read(offset // 4) & known == reset, f"{offset:03X}h"
        fixed = model.read(offset // 4) & ~writable & ~clears
        for value in (0xFFFF_FFFF, 0):
            model.write(offset // 4, 15, value)
            assert model.read(offset // 4) == fixed | value & writable, f"{offset:03X}h"


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_gateware_reads_and_writes_as_the_literals_say(name):
    """Every dword, after reset, with all ones written and with all zeros."""
    dut = ConfigSpace(ports=1, identity=IDENTITIES[name])
    function = int(name != "upstream")
    # A placeholder's registers are kept behind those of its port.
    first, end = (HELD, 4 * HELD_DWORDS) if name == "placeholder" else (0, 0x300)

    async def access(ctx, register, *write):
        ctx.set(dut.request.payload, {"function": function, "register": register,
                                      "write": bool(write), "enables": 15, "data": sum(write)})
        ctx.set(dut.request.valid, 1)
        await ctx.tick().until(dut.request.ready)
        ctx.set(dut.request.valid, 0)
        value, = await ctx.tick().sample(dut.response.payload).until(dut.response.valid)
        return value

    async def process(ctx):
        ctx.set(dut.response.ready, 1)
        for offset, (writable, clears, reset, known) in words(name).items():
            if offset >= end and (offset < 0xFFC or first):
                continue  # all alike
            value = await access(ctx, first + offset // 4)
            assert value & known == reset, f"{offset:03X}h"
            fixed = value & ~writable & ~clears
            for ones in (0xFFFF_FFFF, 0):
                if offset == 0x3C and not first:
                    ones &= ~(1 << 22)  # a reset of the port, or of all
                await access(ctx, first + offset // 4, ones)
                value = await access(ctx, first + offset // 4)
                if name == "all options" and offset == 0x78:
                    value &= ~(1 << 20)  # Command Completed
                assert value == fixed | ones & writable, f"{offset:03X}h"

    simulate(dut, process)
