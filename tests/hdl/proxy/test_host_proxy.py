"""dxpu.proxy.host: what the manager's registers and the board do to what the host sees."""

from amaranth import *

from dxpu.proxy import HostProxy
from dxpu.switch import Identity
from dxpu_model.tlp import Tlp
from tests.support.switch_bench import config_tlp
from tests.support.testbench import Packet, access, collect_packets, drive_packets, simulate


def test_the_serial_number_reaches_the_capability():
    """That of the build, of the register, then of the board; the upper half is the build's."""
    dut = HostProxy(64, ports=1, paths=1, peers=1, streams=1,
                    identity=Identity(serial=0x0A1B_2CFF_1234_5678))
    address = dut.registers.address("control.serial")
    names = ("gmii0_rx", "gmii0_tx")

    async def process(ctx):
        async def capability():
            values = []
            for register in (0x154 // 4, 0x158 // 4):
                got = []
                await drive_packets(dut.upstream.rx, [Packet(config_tlp(0x0100, register))])(ctx)
                await collect_packets(dut.upstream.tx_cpl, 1, got)(ctx)
                values.append(int.from_bytes(Tlp.unpack(got[0].data).payload, "little"))
            return values[1] << 32 | values[0]

        ctx.set(dut.upstream.link_up, 1)
        assert await capability() == 0x0A1B_2CFF_1234_5678
        assert await access(ctx, dut.bus, address) == (0x1234_5678, 0)
        await access(ctx, dut.bus, address, 0x0000_0007)
        assert await capability() == 0x0A1B_2CFF_0000_0007
        ctx.set(dut.serial, 0x8765_4321)
        assert await capability() == 0x0A1B_2CFF_8765_4321
        ctx.set(dut.serial, 0)
        assert await capability() == 0x0A1B_2CFF_0000_0007

    simulate(DomainRenamer(dict.fromkeys(names, "sync"))(dut), process)
