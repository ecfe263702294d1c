"""dxpu_manage: GPUs that keep what a host has left in them."""

import pytest

from dxpu_manage import ManageError, Proxy, dirty_slots, let_maintain, mark_wiped, pair
from tests.manage.test_proxy import LOSS, numbered, tables
from tests.support.manager_bench import run


def test_a_gpu_is_wiped_between_two_hosts():
    """Over a bad network; one that is in use cannot be."""
    host_node, box_node, *_ = tables()

    async def do(manager, network):
        host, box = await numbered(manager, host_node, box_node)
        assert await dirty_slots(box) == [1, 2, 3]
        for slot in (2, 1):
            await mark_wiped(box, slot)
        assert await dirty_slots(box) == [3]
        await pair(host, box, key=None)
        await box.bind(0, 1)
        assert await dirty_slots(box) == [1, 3]
        with pytest.raises(ManageError, match="the GPU in slot 1 is in use, so it stays dirty; "):
            await mark_wiped(box, 1)
        await box.unbind(0)
        await mark_wiped(box, 1)
        await let_maintain(box, 1)
        assert await box.read("control.scrub") == {"hold": 7, "maintainer": 1}
        await box.write("control.scrub", hold=5, maintainer=1)
        await let_maintain(box, None)
        assert await box.read("control.scrub") == {"hold": 5, "maintainer": 0}

    run(do, host_node[0], box_node[0], loss=LOSS)


def test_what_cannot_be_is_one_line():
    host_node, box_node, *_ = tables()

    async def do(manager, network):
        host, box = [await Proxy.of(manager.node(mac, key)) for _, mac, key in (
            host_node, box_node)]
        for wish, says in ((lambda: dirty_slots(host), "a box has GPUs, a host has none"),
                           (lambda: mark_wiped(box, 4), "it has slots 1 to 3, not 4"),
                           (lambda: let_maintain(box, 0xFFF), "0x001 to 0xffe, not 0xfff")):
            with pytest.raises(ManageError) as raised:
                await wish()
            assert says in str(raised.value) and "\n" not in str(raised.value)

    run(do, host_node[0], box_node[0])
