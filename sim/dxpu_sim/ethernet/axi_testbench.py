"""Models at the ports of an `AxiPair`; what a manager and an operating system set up.
"""

import logging
import os
import random

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge, Timer, gather, with_timeout
from cocotbext.axi import (
    AxiLiteBus, AxiLiteMaster, AxiResp, AxiStreamBus, AxiStreamFrame, AxiStreamSink,
    AxiStreamSource,
)

from dxpu.tlp.types import CompletionStatus
from dxpu_model.tlp import KINDS, Tlp, complete
from dxpu_sim.pcie.switch_setup import set_up_switch

from .axi_design import NAMES, SLOTS, STATISTICS, proxies

__all__ = ["ABOVE", "BASE", "PACKING", "TB", "tlp", "write_of"]

#: Memory behind the slot, and that of the host, which is in no window of the switch.
BASE, ABOVE = 0x8000_0000, 0x4000_0000
#: Bytes of a slot's memory.
WINDOW = 1 << 20
#: Cycles until an ACK is sent if no frame carries it: as few as suit a fast line.
ACK_DELAY = 20
#: Bytes up to which TLPs share a frame.
PACKING = 1500


def tlp(kind, **fields):
    """A TLP by the name of its kind."""
    fmt, type = KINDS[kind]
    return Tlp(fmt, type, **fields)


def write_of(address, payload):
    """A memory write of whole dwords."""
    return tlp("MWr32", address=address, payload=payload, length=len(payload) // 4, first_be=15,
               last_be=15)


class TB:
    """Models at all ports.

    Parameters
    ----------
    dut : cocotb handle
    width : int
        Data bits per beat.
    core_period_ps, mac_period_ps : int
        Periods of the clocks; ``mac_period_ps`` is 0 if there is only that of the core.
    """

    def __init__(self, dut, width, *, core_period_ps, mac_period_ps):
        self._core_period_ps, self._mac_period_ps = core_period_ps, mac_period_ps
        self.dut, self.rng = dut, random.Random(int(os.environ["DXPU_SEED"]))
        logging.getLogger(f"cocotb.{dut._name}").setLevel(logging.WARNING)
        self.maps = dict(zip(NAMES, (p.registers for p in proxies(width)), strict=True))
        self.registers = {name: AxiLiteMaster(AxiLiteBus.from_prefix(dut, f"{name}_s_axil"),
                                              dut.clk, dut.rst) for name in NAMES}
        self.sources, self.sinks = {}, {}
        ports = {"host": "host_{}_axis_upstream",
                 **{n: f"box_{{}}_axis_slot{n}" for n in range(SLOTS)}}
        for name, port in ports.items():
            self.sources[name] = AxiStreamSource(
                AxiStreamBus.from_prefix(dut, port.format("s") + "_rx"), dut.clk, dut.rst)
            for cls in ("p", "np", "cpl"):
                self.sinks[name, cls] = AxiStreamSink(
                    AxiStreamBus.from_prefix(dut, f"{port.format('m')}_tx_{cls}"), dut.clk,
                    dut.rst)

    async def start(self):
        """Clocks and reset; then a session, a binding, a link, windows."""
        dut = self.dut
        dut.rst.value = dut.host_upstream_link_up.value = 1
        for slot in range(SLOTS):
            getattr(dut, f"box_slot{slot}_link_up").value = 0
        dut.box_wipes.value = (1 << SLOTS) - 1
        for name in NAMES:
            getattr(dut, f"{name}_links").value = 1
            getattr(dut, f"{name}_spoil").value = 0
        Clock(dut.clk, self._core_period_ps, "ps", impl="gpi").start()
        if self._mac_period_ps:
            dut.mac_rst.value = 1
            Clock(dut.mac_clk, self._mac_period_ps, "ps", impl="gpi").start()
        await Timer(200, "ns")
        await RisingEdge(dut.clk)
        dut.rst.value = 0
        if self._mac_period_ps:
            await RisingEdge(dut.mac_clk)
            dut.mac_rst.value = 0
        await Timer(200, "ns")
        cocotb.start_soon(self._link())
        await self._bind()
        await self._enumerate()

    async def _link(self):
        """The link of a slot is down while the proxy resets it."""
        while True:
            await RisingEdge(self.dut.clk)
            resets = int(self.dut.box_reset.value)
            for slot in range(SLOTS):
                getattr(self.dut, f"box_slot{slot}_link_up").value = 1 - (resets >> slot & 1)

    async def read(self, proxy, path):
        """Value of a register."""
        answer = await self.registers[proxy].read(self.maps[proxy].address(path), 4)
        assert answer.resp == AxiResp.OKAY, path
        return int.from_bytes(answer.data, "little")

    async def write(self, proxy, path, value=None, **fields):
        """Write a value, or some fields with all others 0, to a register."""
        placed, base = self.maps[proxy].find(path)
        word = placed.register.pack(**fields) if value is None else value
        answer = await self.registers[proxy].write(base + placed.address,
                                                   word.to_bytes(4, "little"))
        assert answer.resp == AxiResp.OKAY, path

    async def wait(self, proxy, path, mask, value):
        """Wait until some bits of a register have a value."""
        for _ in range(1000):
            if await self.read(proxy, path) & mask == value:
                return
        raise AssertionError(f"{proxy}: {path} never is {value:#x}")

    async def _bind(self):
        """The first register writes of docs/reference/ports.md, for each slot."""
        for path, box, host in (
                ("control.node", 0x101, 1), ("control.quiet", 16, 16), ("control.boot", 1, 1),
                ("control.present", (1 << SLOTS) - 1, None),
                ("control.peer[0].node", 0x80000001, 0x80000101),
                ("control.session[0].mode", 2, 1)):
            for proxy, value in (("box", box), ("host", host)):
                if value is not None:
                    await self.write(proxy, path, value)
        await self.wait("host", "control.session[0].hello", 7, 6)
        for row in range(SLOTS):
            for proxy, target in (("box", {"node": 1}), ("host", {"node": 0x101, "slot": row + 1})):
                await self.write(proxy, "table.operation_id", 1 + row)
                await self.write(proxy, "table.target", **target)
                await self.write(proxy, "table.paths", 1)
                await self.write(proxy, "table.commit", generation=1, row=row, used=1)
            await self.wait("host", "table.result", 15, 1)
            await self.wait("host", f"control.slot[{row}].state", 3, 3)
        for proxy in NAMES:
            await self.write(proxy, "control.fabric", packing_limit=PACKING, ack_delay=ACK_DELAY)

    async def _enumerate(self):
        """Bus numbers, windows, enables, and Max_Payload_Size of 512 bytes: upstream port at bus 1,
        slots behind bus 2."""
        await set_up_switch(self.configure, slots=SLOTS, base=BASE, window=WINDOW)
        # What a slot is told when its link comes up: Set_Slot_Power_Limit.
        await Timer(3, "us")
        for slot in range(SLOTS):
            sink = self.sinks[slot, "p"]
            while not sink.empty():
                assert Tlp.unpack(bytes(sink.recv_nowait())).message_code == 0x50

    async def configure(self, target, register, value=None):
        """Read or write a register of the function with an ID, as software sees it."""
        kind = ("CfgRd" if value is None else "CfgWr") + str(int(target > 0x1FF))
        request = tlp(kind, length=1, first_be=15, target_id=target, register=register // 4,
                      payload=b"" if value is None else value.to_bytes(4, "little"))
        return int.from_bytes(await self.ask(request) or b"", "little")

    async def ask(self, request):
        """Data of the completion of a request of the host."""
        await self.sources["host"].send(request.pack())
        answer = Tlp.unpack(bytes(await with_timeout(
            self.sinks["host", "cpl"].recv(), 50, "us")))
        assert (answer.status, answer.tag) == (0, request.tag), answer
        return answer.payload

    async def device(self, held):
        """Answer the next request that comes to the first slot."""
        request = Tlp.unpack(bytes(await self.sinks[0, "np"].recv()))
        await self.sources[0].send(
            complete(request, CompletionStatus.SC, 0x0300, held).pack())
        return request

    def statistics(self, proxy):
        """What the line of a proxy has counted."""
        return {name: int(getattr(self.dut, f"{proxy}_{name}").value) for name in STATISTICS}

    def check_line(self):
        """No frame was late or broke a rule, on either line."""
        for proxy in NAMES:
            counts = self.statistics(proxy)
            assert counts["frames"] and not (
                counts["underruns"] or counts["violations"] or counts["runts"]), (proxy, counts)

    async def check_macs(self):
        """What the MACs of the proxies have counted is what the lines have."""
        await Timer(3, "us")
        for here, there in (NAMES, NAMES[::-1]):
            before = self.statistics(here)
            sent, good, bad = [await self.read(who, f"counters.mac0_{name}") for who, name in (
                (here, "tx_good"), (there, "rx_good"), (there, "rx_error"))]
            after = self.statistics(here)
            assert before["frames"] <= sent <= after["frames"] + 1
            assert bad == after["spoiled"] and before["frames"] <= good + bad
            for name in ("tx_aborted", "tx_giant", "rx_not_dwords", "rx_overflow"):
                assert await self.read(here, f"counters.mac0_{name}") == 0, name

    async def burst(self, count, payload, *, source="host", group=1):
        """Writes of the host to the slots, or of their devices to the host: in ps, when each one
        has arrived. Of the host, ``group`` after ``group`` goes to each slot in turn."""
        sent = {slot: [] for slot in range(SLOTS)}
        for n in range(count):
            slot = n // group % SLOTS
            one = write_of((BASE if source == "host" else ABOVE) + slot * WINDOW
                           + len(sent[slot]) * payload, self.rng.randbytes(payload))
            one.requester_id = 0 if source == "host" else 3 + slot << 8
            sent[slot].append(one.pack())
            self.sources["host" if source == "host" else slot].send_nowait(
                AxiStreamFrame(sent[slot][-1]))
        times, arrived = [], {slot: [] for slot in range(SLOTS)}

        async def collect(sink, expected):
            for _ in range(expected):
                # A frame that is lost may wait for a timer.
                frame = await with_timeout(sink.recv(), 1000, "us")
                slot = int.from_bytes(bytes(frame)[8:12], "big") % BASE % ABOVE // WINDOW
                arrived[slot].append(bytes(frame))
                times.append(frame.sim_time_end)
            assert sink.empty()

        await gather(*(collect(self.sinks[slot, "p"], len(sent[slot])) for slot in sent)
                     if source == "host" else [collect(self.sinks["host", "p"], count)])
        assert arrived == sent
        return sorted(times)
