"""A box on a board, and a manager at the other end of its cable, who has the key of its record."""

import os
import random

import cocotb
from cocotb.triggers import Timer

from dxpu.factory import FactoryRecord, FactoryState
from dxpu.fabric.wire.format import NODE_UNASSIGNED
from dxpu.management.format import Status
from dxpu.proxy import BoxProxy
from dxpu_boards.registers import IDENTITY, map_of
from dxpu_boards.registry import BOARDS
from dxpu_model.management import Answer, ManagerEnd, Operation
from dxpu_sim.pcie.ports import Mailbox, quiet
from dxpu_sim.system.managed import MANAGER_MAC, Manager

from .bench import powered, serve
from .spi_flash import SpiFlash

BOARD = BOARDS["versa-ecp5-5g"]
KEY, MAC, SERIAL = bytes(range(0x60, 0x80)), bytes.fromhex("001122334455"), 7


class Managed:
    """The box, and an association with it."""

    def __init__(self, dut):
        quiet()
        self.dut, rng = dut, random.Random(int(os.environ["DXPU_SEED"]))
        dut.button.value, dut.flash_cipo.value = 0, 1
        self.manager = Manager(Mailbox(dut, "ethernet"), rng)
        self.end = ManagerEnd(KEY[:16], 1, rng.randbytes, node=NODE_UNASSIGNED, node_mac=MAC,
                              own_mac=MANAGER_MAC)
        self.map = map_of(BoxProxy(64, slots=1, paths=BOARD.path_count, peers=1, streams=1,
                                   keys=True, managed=True), BOARD, width=64)

    async def open(self):
        """Wait for the record and the first random words, and associate."""
        record = FactoryRecord(MAC, SERIAL, KEY).to_bytes()
        await Timer(1, "us")
        cocotb.start_soon(serve(self.dut, SpiFlash(
            {BOARD.record + n: byte for n, byte in enumerate(record)})))
        await powered()
        await Timer(200, "us")
        assert int(self.dut.state.value) == FactoryState.VALID.value

        def opened(frame):
            self.end.take(frame)
            return self.end.open or None

        await self.manager.exchange(self.end.ask(), opened)
        return self.end.identity

    async def request(self, *operations):
        """The answer to a request of epoch 1."""
        return await self.manager.exchange(
            self.end.request(1, operations),
            lambda got: answer if isinstance(answer := self.end.take(got), Answer) else None)

    async def read(self, *paths):
        """Fields of registers, by one request."""
        found = [self.map.find(path) for path in paths]
        answer = await self.request(*(Operation(base + placed.address) for placed, base in found))
        assert answer.status == Status.DONE, answer
        return [placed.register.unpack(word)
                for (placed, _), word in zip(found, answer.words, strict=True)]

    def writing(self, path, **fields):
        """An operation."""
        placed, base = self.map.find(path)
        return Operation.write(base + placed.address, placed.register.pack(**fields))


@cocotb.test()
async def a_manager_reads_and_writes_the_registers_of_the_board(dut):
    """Those of the proxy and of the board in one request; one that there is not: nothing acts."""
    box = Managed(dut)
    identity = await box.open()
    assert (identity.mac, identity.serial, identity.number) == (MAC, SERIAL, NODE_UNASSIGNED)
    of_proxy, of_board, uptime, watchdog, serial = await box.read(
        "control.shape", "board.identity", "board.uptime", "board.watchdog", "board.serial")
    assert of_proxy["rows"] == 1 and of_board["value"] == IDENTITY and uptime["seconds"] == 0
    assert watchdog == {"enable": 1, "last": 0, "count": 0} and serial["value"] == SERIAL
    answer = await box.request(box.writing("board.watchdog", enable=0),
                               box.writing("control.node", number=0x123))
    assert answer.status == Status.DONE
    assert await box.read("board.watchdog", "control.node") == [
        {"enable": 0, "last": 0, "count": 0}, {"number": 0x123}]
    base = box.map.blocks["board"][0]
    for wrong in (Operation(base + 0xFFC), Operation(0xFFFC), box.writing("board.uptime")):
        answer = await box.request(box.writing("board.watchdog", enable=1), wrong)
        assert answer.status in (Status.ADDRESS, Status.REFUSED), answer
    watchdog, = await box.read("board.watchdog")
    assert watchdog["enable"] == 0
