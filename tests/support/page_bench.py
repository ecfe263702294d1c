"""The manager's page in a browser: before light nodes, or of records alone.

``python -m tests.support.page_bench FILE`` takes the picture of the documentation.
"""

import asyncio
import contextlib
import random
import socket
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from dxpu.fabric.wire.format import node_mac
from dxpu_manage import Manager
from dxpu_manager import Limits, Nodes, Pool, PoolManager, Requests, SqliteStore, State
from dxpu_manager.records import Binding, Gpu, Node, Role
from dxpu_manager.service import Settings
from dxpu_manager.service.program import listening
from dxpu_manager.service.service import Service

from .browser import browser
from .service_bench import block, eventually, on_a_desk

__all__ = ["A", "B", "C", "D", "H0", "H1", "LIVE", "free_port", "in_a_browser", "is_in",
           "large_pool", "of_records", "opened", "push", "slot"]

#: Hosts and GPUs of a desk.
H0, H1 = "00000100", "00000101"
A, B, C, D = "00010000.1", "00010000.2", "00010001.1", "00010001.2"
#: In the page: it shows the pool as it is.
LIVE = "document.body?.dataset.link === 'live'"


def free_port():
    """A port where nobody listens."""
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        return tried.getsockname()[1]


def in_a_browser(tmp_path, does: Callable, **desk):
    """Run ``does`` with a desk of :func:`on_a_desk`, a browser, and the address of the page."""
    async def with_browser(there):
        settings = replace(there.settings, unix=None, port=free_port())
        async with browser(tmp_path / "profile") as window, listening(there.service, settings):
            await does(there, window, f"{settings.address}/ui")

    on_a_desk(tmp_path, with_browser, **desk)


def slot(gpu):
    """The slot of a GPU on the page."""
    return f'[data-gpu="{gpu}"]'


def is_in(gpu, state):
    """Whether the page shows a GPU in a state."""
    return f"document.querySelector('{slot(gpu)}')?.dataset.state === '{state}'"


async def push(page, name, within="dialog"):
    """Click the last button with a text in a dialog, or elsewhere."""
    await page.click_at(f"[...document.querySelectorAll('{within} button')].findLast(b => "
                        f"b.textContent === '{name}' && b.getClientRects().length)")


async def opened(window, url, **look):
    """The page when it shows the pool."""
    page = await window.page(url, **look)
    await page.until(LIVE)
    return page


def large_pool(boxes=64, slots=8, hosts=128, ports=8, seed=1):
    """Records of a pool in which GPUs are in all states; each host has 3 GPUs at most."""
    rng = random.Random(seed)
    nodes = [Node(0x10000 + n, Role.BOX, f"0251000100{n:02x}", 0x800 + n, slots,
                  label=f"r{n // 8 + 1:02d}-box{n % 8 + 1}") for n in range(boxes)]
    nodes += [Node(0x100 + n, Role.HOST, f"0251000000{n:02x}", n + 1, ports,
                   label=f"node-{n + 1:03d}", closed=n % 41 == 7) for n in range(hosts)]
    ends = iter([(host.serial, port) for port in range(3) for host in rng.sample(
        nodes[boxes:], hosts)])
    others = [State.SPARE, State.RESERVED, State.QUARANTINED, State.FAILED, State.ABSENT]
    gpus = []
    for box in nodes[:boxes]:
        for slot in range(1, slots + 1):
            draw = rng.random()
            state = (State.ATTACHED if draw < 0.6 else State.FREE if draw < 0.88
                     else rng.choice(others))
            binding = Binding(*next(ends), 1) if state is State.ATTACHED else None
            gpus.append(Gpu(box.serial, slot, state, since=1.0, binding=binding,
                            generation=int(binding is not None),
                            model=rng.choice(("V100", "A100", "H100"))))
    return [*nodes, *gpus]


class _Nowhere:
    """A port to no fabric."""

    def send(self, frame):
        """Lose a frame."""


def of_records(tmp_path, records, does: Callable):
    """Run ``does`` with the service of a pool with these records, whose nodes nobody asks, a
    browser, and the address of the page."""
    async def whole():
        store = SqliteStore(tmp_path / "pool.db")
        pool = await Pool.of(store)
        with pool.change() as change:
            for record in records:
                change.put(record, f"{record.key} as in the test")
        fabric = Manager(_Nowhere(), node_mac(0, 0), epoch=store.epoch)
        manager = PoolManager(pool, Nodes(fabric, {}), Limits())
        service = Service(manager, Requests(manager))
        settings = Settings(store=tmp_path / "pool.db", records=tmp_path, port=free_port())
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(store.close)
            await pool.durable()
            window = await stack.enter_async_context(browser(tmp_path / "profile"))
            await stack.enter_async_context(listening(service, settings))
            await asyncio.wait_for(does(service, window, f"{settings.address}/ui"), 120)

    asyncio.run(whole())


def take_picture(path):
    """Write a picture of a pool with something of everything, as PNG."""
    from PIL import Image

    async def does(desk, window, url):
        for serial, label in ((0x100, "node-a"), (0x101, "node-b"), (0x102, "node-c"),
                              (0x103, "node-d"), (0x10000, "rack1-1"), (0x10001, "rack1-2"),
                              (0x10002, "rack2-1"), (0x10003, "rack2-2")):
            desk.service.label(desk.pool.node(serial), label)
        manager = desk.service.manager
        manager.describe(0x10002, models=dict.fromkeys(range(1, 5), "A100"))
        for box in (0x10000, 0x10001, 0x10003):
            manager.describe(box, models=dict.fromkeys(range(1, 5), "V100"))
        await desk.attach("00000100", "00010000.1", "00010000.2")
        await desk.attach("00000101", "00010000.4", "00010002.1")
        await desk.attach("00000103", "00010003.2", "00010003.3", "00010001.1")
        manager.spare("00010001.4")
        manager.set_aside("00010002.4")
        desk.nodes.do("pull 00010003 4")
        await desk.ask("POST", "Systems/00000103/Actions/Oem/DxPU.Detach", {
            "ResourceBlocks": [block("00010001.1")], "Force": True}, status=202)
        await eventually(lambda: desk.pool.gpu("00010001.1").state is State.FREE)
        await desk.ask("POST", "CompositionService/Oem/DxPU/Requests", {
            "Host": "00000102", "Count": 4, "Model": "A100"}, status=201)
        manager.has_agent(0x101)
        await desk.ask("POST", "Systems/00000101/Actions/Oem/DxPU.Attach", {
            "ResourceBlocks": [block("00010001.2")]}, status=202)
        page = await window.page(url, width=1510, height=820)
        await page.until("document.body.dataset.link === 'live'")
        await page.until("document.querySelector('.slot[data-state=absent]')")
        await page.click(slot("00010001.2"))
        await page.until("document.querySelector('dialog').innerText.includes('the agent of host')")
        await page.picture(path)
        # 200 colours are enough, and a third of the bytes.
        Image.open(path).quantize(200).save(path, optimize=True)

    with tempfile.TemporaryDirectory() as folder:
        in_a_browser(Path(folder), does, hosts=4, boxes=4, cards=4, paths=2)


if __name__ == "__main__":
    take_picture(Path(sys.argv[1]))
