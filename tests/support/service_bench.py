"""A manager with its interface over HTTP before light nodes, all in one loop, in real time."""

import asyncio
import contextlib
from collections.abc import Callable

import httpx

from dxpu_manager import Limits, Role
from dxpu_manager.service import Settings
from dxpu_manager.service.program import listening, serving
from dxpu_sim.system.agents.program import FABRIC, RECORDS, NodesProgram, make_agents

__all__ = ["BLOCKS", "LIMITS", "ROOT", "Desk", "eventually", "on_a_desk"]

ROOT = "/redfish/v1"
BLOCKS = f"{ROOT}/CompositionService/ResourceBlocks"
#: Waits that are long enough for a busy machine, and short enough for a test.
LIMITS = Limits(attach=5.0, consent=3.0, patience=1.0, again=0.05, look=2.0, admits=True)


class Desk:
    """What a test has: the service, the nodes, and clients."""

    def __init__(self, service, nodes, settings):
        self.service, self.nodes, self.settings = service, nodes, settings
        self.pool = service.pool
        self.http = self.client()

    def client(self, **options):
        """Another client."""
        return httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=str(self.settings.unix)),
            base_url="http://localhost", timeout=20.0, **options)

    async def ask(self, method, path, body=None, status=200, **options):
        """Ask for something below the root; the content of the answer, which has this status."""
        full = path if path.startswith("/") else f"{ROOT}/{path}"
        answer = await self.http.request(method, full, json=body, **options)
        assert answer.status_code == status, (answer.status_code, answer.text)
        return answer.json() if answer.content else {}

    async def get(self, path, **options):
        """Read a resource."""
        return await self.ask("GET", path, **options)

    async def attach(self, host, *gpus):
        """Attach GPUs, and wait for the end."""
        task = await self.ask("POST", f"Systems/{host}/Actions/Oem/DxPU.Attach", {
            "ResourceBlocks": [block(gpu) for gpu in gpus]}, status=202)
        await self.ended(task)
        return task

    async def ended(self, task):
        """The task when it has ended."""
        async def done():
            now = await self.get(f"TaskService/Tasks/{task['Id']}")
            return now if "EndTime" in now else None
        return await eventually(done)

    async def state(self, gpu):
        """State of a GPU, as shown."""
        return (await self.get(f"{BLOCKS}/{gpu}"))["Oem"]["DxPU"]["State"]

    def cards(self, serial):
        """GPUs that a host sees, by the nodes."""
        host = self.nodes.node(serial)
        return {f"{box.serial:08x}.{row.slot}"
                for port, row in enumerate(host.rows) if self.nodes.fabric.is_linked(host, port)
                for box in self.nodes.agents if box.number == row.node}


def block(gpu):
    """Link to a GPU."""
    return {"@odata.id": f"{BLOCKS}/{gpu}"}


async def eventually(is_so: Callable, seconds=90.0):
    """What a function says at last, which is neither false nor nothing."""
    end = asyncio.get_running_loop().time() + seconds
    while True:
        said = is_so()
        if asyncio.iscoroutine(said):
            said = await said
        if said:
            return said
        assert asyncio.get_running_loop().time() < end, "it has not become so"
        await asyncio.sleep(0.02)


def on_a_desk(tmp_path, does, *, hosts=2, boxes=2, cards=2, paths=1, limits=LIMITS, account=None):
    """Run ``does`` with a :class:`Desk` whose manager has met all nodes."""
    settings = Settings(store=tmp_path / "pool.db", records=tmp_path / RECORDS,
                        socket=tmp_path / FABRIC, unix=tmp_path / "m.sock", limits=limits)

    async def whole():
        nodes = NodesProgram(tmp_path, make_agents(hosts, boxes, cards, rows=4, paths=paths))
        serves = asyncio.create_task(nodes.serve())
        await asyncio.sleep(0)
        try:
            async with serving(settings) as service, listening(service, settings):
                if account:
                    service.accounts.make(*account)
                desk = Desk(service, nodes, settings)
                await eventually(lambda: len([gpu for gpu in service.gpus()
                                              if gpu.state == "free"]) == boxes * cards
                                 and len(service.nodes(Role.HOST)) == hosts)
                async with contextlib.AsyncExitStack() as stack:
                    await stack.enter_async_context(desk.http)
                    await asyncio.wait_for(does(desk), 240)
        finally:
            serves.cancel()

    asyncio.run(whole())
