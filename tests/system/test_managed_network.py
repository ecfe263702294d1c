"""A manager with nothing but an Ethernet interface of Linux sets up a whole system in Verilator.

A network namespace of its own keeps this machine's interfaces out of it.
"""

import json
import os
import subprocess
import sys

import pytest

from dxpu_sim.system.network import MANAGER_INTERFACE
from tests.system.test_host_network import UNSHARE, missing

#: The demo's system, with one path.
SYSTEM = {"width": 64, "boxes": (2, 1), "ports": 8, "paths": 1, "peers": 2, "streams": 1,
          "keys": True, "managed": True}
#: The simulation is slower than hardware by some thousands, and a request has one of its own.
SLOWER = "200"

#: Who knows no more than the keys: finds the nodes, numbers, pairs and binds them.
MANAGER = """
import asyncio, secrets, sys

from dxpu.fabric.wire.format import node_mac
from dxpu_host import EthernetPort
from dxpu_manage import Manager, NoAnswer, Proxy, attach, pair
from dxpu_sim.system.design import factory_of


async def main(interface, slower):
    async with Manager(EthernetPort(interface, 0), node_mac(0, 0), slower=slower) as manager:
        while len(manager.announced) < 3:
            await asyncio.sleep(0.1)
        hosts, boxes = [], []
        for mac, identity in sorted(manager.announced.items()):
            number = identity.serial & 0xFFF
            assert identity.number == 0xFFF and identity.capabilities & 0x20
            proxy = await Proxy.of(manager.node(mac, factory_of(number)[0]))
            await proxy.set_number(number)
            await proxy.write("control.hello", wait=60)
            await proxy.write("control.quiet", time=100)
            (hosts if proxy.is_host else boxes).append(proxy)
        host, = hosts
        for box in boxes:
            await box.change("control.present", slots=(1 << box.rows) - 1)
            key = secrets.token_bytes(16)
            await pair(host, box, key=key)
            await host.wait_open(box.node.number)
            words = await box.read_all(*(f"control.key[{n}].word" for n in range(4)))
            assert words == 4 * [{"bytes": 0}]
        port = 0
        for box in boxes:
            for slot in range(1, box.rows + 1):
                await attach(host, port, box, slot)
                port += 1
        stranger = manager.node(host.node.mac, bytes(16), number=host.node.number)
        manager.slower = slower / 10
        try:
            await stranger.read(0)
        except NoAnswer:
            print("no answer without the key")
        print([peer.node for peer in await host.peers()], [
            (row.node, row.slot) for row in await host.bindings() if row.used])


asyncio.run(main(sys.argv[1], float(sys.argv[2])))
"""


def test_a_program_sets_a_system_up_over_veth(tmp_path):
    if reason := missing():
        pytest.skip(reason)
    (tmp_path / "manager.py").write_text(MANAGER)
    command = [sys.executable, str(tmp_path / "manager.py"), MANAGER_INTERFACE, SLOWER]
    folder = tmp_path / "run"
    done = subprocess.run(
        [*UNSHARE, sys.executable, "-m", "dxpu_sim.system.network", str(folder),
         os.environ.get("DXPU_SEED", "1"), json.dumps(SYSTEM), json.dumps(command)],
        capture_output=True, text=True, timeout=1500)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "command.out").read_text() == (
        "no answer without the key\n"
        "[257, 258] [(257, 1), (257, 2), (258, 1)]\n")
    assert done.stdout.count(" in use") == 3
