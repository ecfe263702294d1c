"""Bench of hot-plug: a host that accesses configuration space, and the hardware of the slots."""

from dataclasses import dataclass, field

from dxpu.switch.switch import VirtualSwitch
from dxpu_model.tlp import Tlp
from tests.support.switch_bench import Switch, config_tlp, info_of
from tests.support.testbench import (
    Packet, check_stream, collect_packets, count_pulses, drive_packets, simulate,
)

__all__ = ["COMMAND", "Host", "LINK", "MSI", "PCIEHP", "PMCSR", "SLOT"]

#: Dword numbers in a downstream function.
COMMAND, PMCSR, MSI, LINK, SLOT = 0x04 // 4, 0x44 // 4, 0x48 // 4, 0x70 // 4, 0x78 // 4


class Host:
    """Sends configuration requests one by one; sorts the TLPs that come upstream.

    ``msis`` holds pairs (address, data), ``messages`` message codes, ``wakes`` PM_PME messages,
    ``arrived`` all raw TLPs.
    """

    def __init__(self, width, ports, rng, *, density=1.0, identity=None):
        self.dut = Switch(width, ports, identity)
        self.ports, self.rng, self.density = ports, rng, density
        self.arrived, self.interrupts, self.completions = [], [], []
        self.msis, self.messages, self.wakes = [], [], []
        self.counts = {}
        self.present_mask = self.link_mask = 0

    def simulate(self, *processes, background=(), **kwargs):
        """Run processes together with the background processes of the host."""
        dut = self.dut
        simulate(dut, *processes, background=[
            self._sort, check_stream(dut.upstream_o, "upstream_o"),
            count_pulses(dut, self.counts, *(s.removeprefix("stat_") for s in VirtualSwitch.STATS)),
            *background,
        ], **kwargs)
        assert self.counts["interrupt"] == len(self.interrupts)

    async def _sort(self, ctx):
        while True:
            got = []
            await collect_packets(self.dut.upstream_o, 1, got, rng=self.rng,
                                  density=self.density)(ctx)
            raw = got[0].data
            tlp = Tlp.unpack(raw)
            self.arrived.append(raw)
            if tlp.kind in ("Cpl", "CplD"):
                assert got[0].meta.name == "CPL"
                self.completions.append(tlp)
                continue
            assert got[0].meta.name == "P"
            if tlp.kind == "Msg" and tlp.message_code == 0x18:
                self.wakes.append(raw)
                continue
            self.interrupts.append(raw)
            if tlp.kind == "Msg":
                self.messages.append(tlp.message_code)
            else:
                assert tlp.kind in ("MWr32", "MWr64")
                self.msis.append((tlp.address, int.from_bytes(tlp.payload, "little")))

    async def request(self, ctx, raw):
        """Send a request and wait for its completion."""
        seen = len(self.completions)
        await self.send(ctx, raw)
        return await self.completion(ctx, seen)

    async def send(self, ctx, raw):
        """Send a request."""
        await drive_packets(self.dut.upstream_i, [Packet(raw, info_of(raw))])(ctx)

    async def completion(self, ctx, seen):
        """Wait for completion number ``seen``."""
        for _ in range(30_000):
            if len(self.completions) > seen:
                return self.completions[seen]
            await ctx.tick()
        raise AssertionError("no completion")

    async def read(self, ctx, port, register):
        """A dword of a downstream port, or of the upstream port (``None``)."""
        answer = await self.request(ctx, self.tlp(port, register))
        assert answer.status == 0
        return int.from_bytes(answer.payload, "little")

    async def write(self, ctx, port, register, data, enables=15):
        """Write bytes of a dword."""
        assert (await self.request(ctx, self.tlp(port, register, data, enables))).status == 0

    def tlp(self, port, register, data=None, enables=15):
        """A configuration request to a port."""
        target = 0x0100 if port is None else 0x0200 | port << 3
        return config_tlp(target, register, data, type1=port is not None, enables=enables)

    async def start(self, ctx):
        """Number the buses and enable bus mastering everywhere."""
        await self.write(ctx, None, 6, 0x00FF_0201)
        await self.write(ctx, None, 1, 7)
        for port in range(self.ports):
            await self.write(ctx, port, 6, (port + 3) * 0x1_0100 | 2)
            await self.write(ctx, port, 1, 7)

    async def set_msi(self, ctx, port, address, data):
        """Enable the MSI of a port."""
        await self.write(ctx, port, MSI + 1, address & 0xFFFF_FFFC)
        await self.write(ctx, port, MSI + 2, address >> 32)
        await self.write(ctx, port, MSI + 3, data)
        await self.write(ctx, port, MSI, 1 << 16)

    # The slots.

    def slots(self, ctx, present=None, link=None):
        """Set presence of GPUs, and their links."""
        self.present_mask = self.present_mask if present is None else present
        self.link_mask = self.link_mask if link is None else link
        ctx.set(self.dut.present, self.present_mask)
        ctx.set(self.dut.link_up, self.link_mask)

    def bind(self, ctx, port):
        """Insert a GPU together with its link, in one cycle."""
        self.slots(ctx, self.present_mask | 1 << port, self.link_mask | 1 << port)

    def unbind(self, ctx, port):
        """Remove the GPU and its link."""
        self.slots(ctx, self.present_mask & ~(1 << port), self.link_mask & ~(1 << port))

    async def press(self, ctx, mask):
        """Press attention buttons."""
        ctx.set(self.dut.press, mask)
        await ctx.tick()
        ctx.set(self.dut.press, 0)


BUTTON, PRESENCE, COMMAND_DONE, LINK_CHANGED = 1 << 0, 1 << 3, 1 << 4, 1 << 8
PRESENT, LINK_ACTIVE = 1 << 6, 1 << 13


@dataclass
class PCIEHP:
    """A hot-plug driver for one port, from PCIe Base 5.0, 6.7, with the states off and on, as in
    pciehp.

    The driver sleeps until an interrupt, then reads and clears events until there are none. A
    button press requests a change of state. Presence or link changes turn the slot off, and on
    again if a GPU with an active link is present.
    """

    host: Host
    port: int
    on: bool = False
    log: list = field(default_factory=list)
    commands: int = 0  #: number of commands completed

    async def probe(self, ctx):
        """Read the slot's capabilities; clear old events; enable interrupts."""
        caps = await self.host.read(ctx, self.port, SLOT - 1)
        assert caps & 0x41 == 0x41, "attention button, hot-plug capable"
        self.events = BUTTON | PRESENCE | LINK_CHANGED
        if not caps >> 18 & 1:
            self.events |= COMMAND_DONE
        await self.host.write(ctx, self.port, SLOT, self.events << 16, 0b1100)
        self.enables = 1 << 0 | 1 << 3 | 1 << 5 | 1 << 12 | (self.events & COMMAND_DONE)
        await self.indicate(ctx, 3)

    async def indicate(self, ctx, indicator):
        """Write Slot Control with this power indicator."""
        await self.host.write(ctx, self.port, SLOT, self.enables | indicator << 8, 0b0011)

    async def serve(self, ctx):
        """The interrupt handler."""
        while True:
            status = await self.host.read(ctx, self.port, SLOT) >> 16
            events = status & self.events
            if not events:
                return
            await self.host.write(ctx, self.port, SLOT, events << 16, 0b1100)
            self.commands += bool(events & COMMAND_DONE)
            await self.handle(ctx, events)

    async def handle(self, ctx, events):
        """Act on the events."""
        if events & BUTTON:
            self.log.append("button")
            await self.indicate(ctx, 2)
            await self.turn(ctx, not self.on)
        if events & (PRESENCE | LINK_CHANGED):
            if self.on:
                await self.turn(ctx, False)
            await self.turn(ctx, True)

    async def turn(self, ctx, on):
        """Turn the slot on if there is a GPU with a link, or off."""
        present = await self.host.read(ctx, self.port, SLOT) >> 16 & PRESENT
        link = await self.host.read(ctx, self.port, LINK) >> 16
        assert not link >> 11 & 1, "training has an end"
        assert bool(link & 0x3FF) == bool(link & LINK_ACTIVE), "width and speed of an active link"
        on = on and bool(present and link & LINK_ACTIVE)
        if on != self.on:
            self.on = on
            self.log.append("on" if on else "off")
        await self.indicate(ctx, 1 if on else 3)
