"""dxpu_manage.windows: what a host's software has set up, as the gateware's registers show it."""

import pytest
from amaranth import Module

from dxpu_manage import ManageError, Windows, buses, windows
from tests.manage.test_proxy import LOSS, SHAPE, numbered, tables
from tests.support.manager_bench import run, simulated
from tests.support.proxy_port import only_table

NONE = Windows(range(0), range(1 << 20), range(1 << 20), False)


def test_buses_and_windows_of_a_port():
    """After a reset; with buses and windows; with windows that are closed, or not enabled."""
    line, host_table = only_table(Module(), "host", rows=3, **SHAPE)
    host_node, box_node = simulated(1, line), tables()[1]

    async def do(manager, network):
        host, box = await numbered(manager, host_node, box_node)

        async def sets(**registers):
            for offset, value in registers.items():
                config = host_table.config
                line.inputs = [(config.function, 2), (config.register, int(offset[1:], 16) // 4),
                               (config.value, value), (config.strobe, 1)]
                await host.read("control.node")
            line.inputs = [(host_table.config.strobe, 0)]

        assert await windows(host, 1) == NONE and not NONE.is_open
        assert await buses(host) == [range(0)] * 3
        await sets(x18=0x0005_0300, x20=0x9010_9000, x24=0x0011_0001, x28=0x40, x2c=0x41)
        found = await windows(host, 1)
        assert found == Windows(range(3, 6), range(0x9000_0000, 0x9020_0000),
                                range(64 << 32, (65 << 32) + (2 << 20)), False)
        # Without Memory Space Enable no window claims anything.
        assert not found.is_open
        await sets(x04=2)
        assert (await windows(host, 1)).is_open
        assert await buses(host) == [range(0), range(3, 6), range(0)]
        await sets(x20=0x0000_0010)
        assert (await windows(host, 1)).is_open and not (await windows(host, 1)).memory
        await sets(x24=0x0000_0010, x28=0, x2c=0)
        assert not (await windows(host, 1)).is_open
        await sets(x20=0x9010_9000, x18=0)
        assert not (await windows(host, 1)).is_open
        for wish, says in ((lambda: windows(box, 0), "a host has windows, a box has none"),
                           (lambda: buses(box), "a host has windows, a box has none"),
                           (lambda: windows(host, 3), "it has ports 0 to 2, not 3")):
            with pytest.raises(ManageError, match=f": {says}$"):
                await wish()

    run(do, host_node[0], box_node[0], loss=LOSS)
