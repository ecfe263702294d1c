"""dxpu_manage: proxies by names, over a bad network, before golden nodes with gateware's registers.
"""

import asyncio

import pytest
from amaranth import Module

from dxpu.proxy.box import BoxProxy
from dxpu.proxy.host import HostProxy
from dxpu_manage import ManageError, Peer, Proxy, Refused, Registers, attach, detach, pair
from tests.support.manager_bench import node, run, simulated
from tests.support.proxy_port import only_table, with_board

SHAPE = {"paths": 2, "peers": 2, "streams": 2}
KEY = bytes(range(16))
#: Frames that are lost, and as many that come twice.
LOSS = 0.1


def tables():
    """A host and a box of control registers and tables alone; and their tables."""
    host, host_table = only_table(Module(), "host", rows=3, **SHAPE)
    box, box_table = only_table(Module(), "box", rows=3, **SHAPE)
    return simulated(1, host), simulated(2, box), host_table, box_table, box


async def numbered(manager, host, box):
    """Both as proxies with their numbers, 1 and 0x101."""
    made = []
    for number, (_, mac, key) in ((1, host), (0x101, box)):
        proxy = await Proxy.of(manager.node(mac, key))
        await proxy.set_number(number)
        made.append(proxy)
    return made


def test_a_pool_is_set_up_by_names_over_a_bad_network():
    """Numbers, peers, sessions, bindings, whose two rows have one generation; the same commands
    again change nothing."""
    host_node, box_node, host_table, box_table, _ = tables()

    async def do(manager, network):
        host, box = await numbered(manager, host_node, box_node)
        assert (host.is_host, host.rows, host.paths, host.peer_count, host.streams) == (
            True, 3, 2, 2, 2)
        assert not box.is_host and not box.has_keys
        assert (host.node.number, box.node.number) == (1, 0x101)
        await box.bind(2, 1, generation=7)
        await box.unbind(2)
        for _ in range(2):
            await pair(host, box, key=None, stream=1)
            assert await attach(host, 0, box, 1) == (await host.bindings())[0]
            await attach(host, 1, box, 3, stream=1, paths=3)
        assert await host.peers() == [Peer(0, 0x101, True, False)]
        assert await box.peers() == [Peer(0, 1, True, False)]
        assert (await host.read("control.boot"))["counter"]
        for proxy, rows, peer in ((host, (0, 1), 0x101), (box, (0, 2), 1)):
            table = await proxy.bindings()
            assert [(row.used, row.generation) for row in (table[n] for n in rows)] == [
                (True, 1), (True, 8)]
            assert [row.target for row in (table[n] for n in rows)] == [(peer, 1, 0), (peer, 3, 1)]
            assert table[rows[1]].paths == 3
        # One that was interrupted is completed; the rows are bound once each.
        await host.unbind(1)
        with pytest.raises(Refused, match="row 1: STALE: generation 8 or a newer one is there$"):
            await attach(host, 1, box, 3, stream=1)
        assert (await box.binding(2)).used
        await box.unbind(2)
        await attach(host, 1, box, 3, stream=1)
        assert (await box.binding(2)).generation == (await host.binding(1)).generation == 9
        await detach(host, 1, box)
        assert [row.used for row in await host.bindings()] == [True, False, False]
        assert [row.used for row in await box.bindings()] == [True, False, False]
        await host.remove_peer(0x101)
        assert await host.peers() == []
        assert (await box.read("table.epoch"))["value"] == 3

    run(do, host_node[0], box_node[0], loss=LOSS, epoch=3)


def test_what_cannot_be_is_one_line():
    host_node, box_node, *_ = tables()

    async def do(manager, network):
        host = await Proxy.of(manager.node(*host_node[1:]))
        name = host.node.name
        with pytest.raises(ManageError, match=f"^host {name}: it has no number yet"):
            await host.add_peer(5, clear=True)
        host, box = await numbered(manager, host_node, box_node)
        there = host.node
        assert there.number == 1
        for wish, says in (
                (lambda: host.read("control.nothing"), "has no register 'control.nothing'"),
                (lambda: host.read("nothing.nothing"), "has no register 'nothing.nothing'"),
                (lambda: host.write("control.node", nummer=1), "Register node has no field nummer"),
                (lambda: host.change("control.node", number=4096),
                 "Field number must fit 12 bits, not 4096"),
                (lambda: host.set_number(0), "a number is 0x001 to 0xffe, not 0x000"),
                (lambda: host.set_number(0xFFF), "a number is 0x001 to 0xffe, not 0xfff"),
                (lambda: host.set_number(0x101),
                 f"0x101 is the number of node {box.node.name}"),
                (lambda: host.add_peer(0x101), "it was built without keys: its peers must be in"),
                (lambda: host.add_peer(1, clear=True), "a peer is another node"),
                (lambda: host.give_key(0x101, KEY), "it was built without keys"),
                (lambda: host.give_key(0x101, KEY[1:]), "a key has 16 bytes, not 15"),
                (lambda: host.remove_peer(0x101), "node 0x101 is none of its peers"),
                (lambda: host.let_open(0x101), "node 0x101 is none of its peers"),
                (lambda: host.binding(3), "it has rows 0 to 2, not 3"),
                (lambda: host.bind(0, 0x101), "which slot of the box"),
                (lambda: box.bind(0, 1, slot=2), "row 0 is slot 1, not 2"),
                (lambda: host.bind(0, 0x101, slot=0), "row 0: BAD_TARGET: a node is"),
                (lambda: host.bind(0, 0x101, slot=1, paths=4), "row 0: BAD_TARGET: a node is"),
                (lambda: host.bind(0, 0xFFF, slot=1), "row 0: BAD_TARGET: a node is"),
                (lambda: pair(box, host, key=None), "a pair is a host and a box"),
                (lambda: detach(host, 0, box), "port 0 is not bound to box"),
                (lambda: attach(host, 0, box, 4), "it has rows 0 to 2, not 3")):
            with pytest.raises(ManageError) as raised:
                await wish()
            assert says in str(raised.value) and "\n" not in str(raised.value)
        for number in (2, 3):
            await host.add_peer(number, clear=True)
        assert await host.add_peer(3, clear=True) == 1
        with pytest.raises(ManageError, match="all 2 peers are taken: first remove one$"):
            await host.add_peer(4, clear=True)
        with pytest.raises(ManageError, match="it is node 0x001 and has peers: first remove them$"):
            await host.set_number(7)
        await host.bind(0, 2, slot=1)
        with pytest.raises(Refused, match="row 0: IN_USE: it is bound to node 0x002, slot 1, "
                                          "stream 0: first release it$"):
            await host.bind(0, 3, slot=1)
        with pytest.raises(ManageError, match="row 0 is bound to node 0x002, slot 1, stream 0: "):
            await attach(host, 0, box, 1)
        assert not (await box.binding(0)).used
        with pytest.raises(ManageError, match="streams 0 to 1, not 2"):
            await host.let_open(2, stream=2)

    run(do, host_node[0], box_node[0])


def test_what_is_no_proxy_is_said():
    model, mac, key = node(3)
    model.registers.has = lambda address, write: True
    model.registers.values |= {0x0: 0x44585056, 0x4: 0, 0x7F8: 0}

    async def do(manager, network):
        with pytest.raises(ManageError, match=f"^node {mac.hex(':')}: not a DXPU proxy: its "
                                              "identity is 0x44585056, not 0x44585055$"):
            await Proxy.of(manager.node(mac, key))

    run(do, model)


def test_a_row_whose_last_binding_is_ending_is_waited_for():
    host_node, box_node, _, table, port = tables()

    async def do(manager, network):
        _, box = await numbered(manager, host_node, box_node)
        port.inputs = [(table.draining, 0b010)]
        binding = asyncio.ensure_future(box.bind(1, 1))
        await asyncio.sleep(0.1)
        assert not binding.done()
        port.inputs = [(table.draining, 0b000)]
        assert (await binding).used

    run(do, host_node[0], box_node[0])


def test_keys_of_a_pair_over_a_bad_network():
    """Whole proxies: a key is in force at both ends, and read by nobody; a peer in clear becomes
    one with a key, and the other way round, with its sessions off."""
    shape = {"paths": 1, "peers": 2, "streams": 1, "keys": True}
    host_node, box_node = (
        simulated(n, with_board(Module(), proxy, "ecpix-5-45f", paths=1, gpus=gpus))
        for n, (proxy, gpus) in enumerate(((HostProxy(32, ports=1, **shape), None),
                                           (BoxProxy(32, slots=1, **shape), 1)), 1))

    async def do(manager, network):
        host, box = await numbered(manager, host_node, box_node)
        assert host.has_keys
        await pair(host, box, key=KEY)
        assert await host.peers() == [Peer(0, 0x101, False, True)]
        assert await box.peers() == [Peer(0, 1, False, True)]
        assert [(await proxy.read("control.session[0].mode"))["opener"]
                for proxy in (host, box)] == [1, 2]
        for n in range(4):
            assert await box.read(f"control.key[{n}].word") == {"bytes": 0}
        counts = await box.counters()
        assert counts["table_committed"] == 0 and len(counts) > 40
        await box.give_key(1, KEY[::-1], following=True)
        assert await box.read("control.peer[0].key") == {"next": 1, "valid": 1}
        with pytest.raises(ManageError, match="is none of its peers"):
            await box.give_key(2, KEY)
        await box.add_peer(1, clear=True)
        assert [peer.clear for peer in await box.peers()] == [True]
        assert (await box.read("control.session[0].mode"))["opener"] == 0
        with pytest.raises(ManageError, match="sessions with node 0x001 are in clear"):
            await box.give_key(1, KEY)
        await pair(host, box, key=KEY)
        assert await box.peers() == [Peer(0, 1, False, True)]

    run(do, host_node[0], box_node[0], loss=LOSS)


def test_many_registers_are_read_by_few_requests():
    model, mac, key = node(1)

    async def do(manager, network):
        port, _ = only_table(Module(), "box", rows=3, **SHAPE)
        registers = simulated(1, port)[0].registers
        network.nodes[0].registers = registers
        there = await Registers.of(manager.node(mac, key))
        names = [f"control.{p.path}" for p in there.map.blocks["control"][1].placed]
        before = network.sent
        found = await there.read_all(*names)
        assert network.sent - before < 3
        assert found == [there.find(name)[1].unpack(registers.read(there.find(name)[0]))
                         for name in names]
        assert len(names) > 40

    run(do, model)
