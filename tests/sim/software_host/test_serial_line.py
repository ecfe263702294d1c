"""The serial line of a simulated board: `dxpu console` works with it."""

import asyncio
import threading
import time

import pytest
from dxpu.proxy import BoxProxy
from dxpu_cli.main import main
from dxpu_sim.software_host.serial_line import SerialLine
from dxpu_sim.system.setup import RegisterError

MAP = BoxProxy(32, slots=1, paths=1, peers=1, streams=1).registers


class Registers:
    """A box after reset, as of :class:`dxpu_sim.system.setup.Proxy`; the identity is constant."""

    def __init__(self):
        self.held = {base + p.address: p.register.reset for base, block in MAP.blocks.values()
                     for p in block.placed}

    async def access(self, address, value=None):
        if address not in self.held or value is not None and address == 0:
            raise RegisterError("no register")
        if value is not None:
            self.held[address] = value
        return self.held[address]


@pytest.fixture
def registers(tmp_path):
    """What is behind ``tmp_path / "console"``, which is served meanwhile."""
    registers, over = Registers(), threading.Event()
    line = SerialLine(registers, tmp_path / "console")

    def serve():
        while not over.is_set():
            asyncio.run(line.serve())
            time.sleep(0.001)

    thread = threading.Thread(target=serve)
    thread.start()
    yield registers
    over.set()
    thread.join()
    line.close()
    assert not (tmp_path / "console").exists()


def test_console(registers, tmp_path, capsys):
    def say(*words):
        status = main(["console", str(tmp_path / "console"), *words])
        said = capsys.readouterr()
        return status, said.out + said.err

    registers.held[MAP.address("counters.mac0_rx_good")] = 7
    assert say("counters") == (0, "         7  mac0_rx_good\n")
    assert say("write", "control.node", "number=0x123")[0] == 0
    assert registers.held[MAP.address("control.node")] == 0x123
    status, text = say("read", "control.node")
    assert status == 0 and text.split()[:3] == ["0008", "control.node", "00000123"]
    status, text = say("write", "control.identity", "1")
    assert status != 0 and text.count("\n") == 1
