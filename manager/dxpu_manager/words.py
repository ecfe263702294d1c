"""Words of hosts' agents: which GPUs they see.

Ref: docs/reference/manager.md ("The agent of a host")
"""

from dataclasses import replace

from dxpu_manage import ManageError, Stale

from .errors import Conflict, Deposed, Impossible
from .evidence import WORD
from .lifecycle import State
from .nodes import Nodes
from .pool import Change, Pool
from .records import Gpu, Node

__all__ = ["Words"]


class Words:
    """Takes words of agents.

    Parameters
    ----------
    pool : Pool
    nodes : Nodes
    """

    def __init__(self, pool: Pool, nodes: Nodes) -> None:
        self.pool, self.nodes = pool, nodes

    async def confirm(self, host: Node, name: str, bus: int | None, card: str) -> Gpu:
        """Take a word, as :meth:`PoolManager.confirm` says."""
        if bus is not None:
            found = await self._behind(host, bus)
            if name not in ("", found):
                raise Conflict(f"on bus {bus:02x} of host {host.name} is GPU {found}, not {name}")
            name = found
        elif not name:
            name = self._known(host, card)
        gpu = self.pool.gpu(name)
        binding = gpu.binding
        if binding is None or binding.host != host.serial:
            raise Conflict(f"host {host.name} does not have GPU {name}")
        if gpu.state not in (State.ATTACHING, State.ATTACHED):
            raise Conflict(f"GPU {name} is {gpu.state}, not attaching or attached")
        if binding.word and card in ("", gpu.serial):
            return gpu
        said = f"GPU {name}: the agent of host {host.name} sees it"
        if card not in ("", gpu.serial):
            said += f", serial number {card}"
            said += f"; before it was {gpu.serial}: another card is there" * bool(gpu.serial)
        if not binding.word:
            seen = (*binding.seen, WORD) if gpu.state is State.ATTACHED else binding.seen
            binding = replace(binding, word=self.pool.clock(), seen=seen)
        gpu = replace(gpu, binding=binding, serial=card or gpu.serial)
        with self.pool.change() as change:
            self._forget_elsewhere(change, gpu)
            change.put(gpu, said)
        return gpu

    def _known(self, host: Node, card: str) -> str:
        """The GPU of a host with a serial number."""
        if not card:
            raise Impossible("say which GPU the host sees, by name, bus or serial number")
        for gpu, _ in self.pool.bound_to(host.serial).values():
            if gpu.serial == card:
                return gpu.name
        raise Conflict(f"no GPU of host {host.name} is known by serial number {card}: say its name "
                       "or its bus, too, once")

    def _forget_elsewhere(self, change: Change, gpu: Gpu) -> None:
        """A card is in one slot at a time."""
        for other in self.pool.all(Gpu):
            if not gpu.serial or other.serial != gpu.serial or other.name == gpu.name:
                continue
            if other.binding is not None:
                raise Conflict(f"serial number {gpu.serial} is that of GPU {other.name}, which "
                               f"host {other.binding.host:08x} has")
            change.put(replace(other, serial=""),
                       f"GPU {other.name} has another serial number: {gpu.serial} is {gpu.name}")

    async def _behind(self, host: Node, bus: int) -> str:
        """The GPU on a bus of a host."""
        try:
            buses = await self.nodes.buses(host)
        except Stale:
            raise Deposed("another manager has taken over") from None
        except ManageError as error:
            raise Conflict(f"host {host.name} cannot be asked: {error}") from None
        for port, (gpu, _) in self.pool.bound_to(host.serial).items():
            if bus in buses[port]:
                return gpu.name
        raise Conflict(f"on bus {bus:02x} of host {host.name} is no GPU of the pool")
