"""Looks at nodes: each is met when announced, and brought to what the records say."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from dxpu.management.format import Subject
from dxpu_manage import Identity, ManageError, NoAnswer, Stale
from dxpu_model.management import Event

from .background import Background
from .driver import Driver
from .errors import Conflict, Deposed, Impossible, NotFound, PoolError, StoreError
from .lifecycle import BOUND, Cause, State, may
from .limits import Limits
from .nodes import Nodes, is_bound
from .path_keeper import PathKeeper
from .pool import Pool
from .records import Gpu, Job, Node, Role, gpu_id

__all__ = ["Looks", "STRANGERS"]

#: So many strangers are remembered, as anybody on the fabric can announce anything.
STRANGERS = 64

#: Seconds in which a node without a number announces itself for sure, though frames get lost.
_ANNOUNCED = 10.0
#: Node numbers of hosts and boxes.
_NUMBERS = {Role.HOST: range(0x001, 0x800), Role.BOX: range(0x800, 0xFF0)}
#: Roles of identities.
_ROLES = {1: Role.HOST, 2: Role.BOX}


class Looks:
    """Finds nodes, and mends each difference from the records.

    Parameters
    ----------
    pool : Pool
    nodes : Nodes
    limits : Limits
    driver : Driver
        Binds again what was lost.
    background : Background
        Where meetings and looks of :meth:`watch` go on.

    Attributes
    ----------
    down : dict of str
        Nodes without an answer lately, by serial number, and why.
    strangers : dict of str
        Nodes with announcements that were not taken in, by factory address, and why; the oldest is
        forgotten for one too many (:data:`STRANGERS`).
    dropped : int
        Strangers that were forgotten for others.
    """

    def __init__(self, pool: Pool, nodes: Nodes, limits: Limits, driver: Driver,
                 background: Background) -> None:
        self.pool, self.nodes, self.limits = pool, nodes, limits
        self.down: dict[int, str] = {}
        self.strangers: dict[bytes, str] = {}
        self.dropped = 0
        #: When each stranger was heard last, in seconds of the loop.
        self._heard: dict[bytes, float] = {}
        #: Nodes of which events say that they do not answer.
        self._silent: set[int] = set()
        #: A flood of strangers has begun, and was said.
        self._flood = False
        self._driver, self._background = driver, background
        self._paths = PathKeeper(pool, nodes, limits, background, self._looks_at_once)
        self._looking: dict[int, asyncio.Lock] = {}
        #: Addresses of nodes that are being met.
        self._meeting: set[bytes] = set()
        #: Nodes that are looked at, as they have told something unexpected.
        self._told: set[int] = set()

    async def meet(self, identity: Identity) -> None:
        """Give a number to a node that has announced itself, and bring the node to the records.

        The node's description is believed after a proof of the key.

        Raises
        ------
        PoolError, ~dxpu_manage.ManageError
        """
        role = _ROLES.get(identity.role)
        if role is None:
            raise Impossible(f"{identity.mac.hex(':')} is neither host nor box")
        try:
            node = self.pool.node(identity.serial)
        except NotFound:
            taken = {known.number for known in self.pool.all(Node)}
            number = next((n for n in _NUMBERS[role] if n not in taken), None)
            if number is None:
                raise Conflict(f"all numbers of {role}s are taken: retire one") from None
            node = Node(identity.serial, role, identity.mac.hex(), number, identity.slots)
            if (node.serial, identity.mac) not in self.nodes.keys:
                raise Impossible(f"no key of the {role} {node.name} at {identity.mac.hex(':')}: "
                                 "give its factory record to the manager") from None
            with self.pool.change() as change:
                change.put(node, f"{role} {node.name} has number {number:#05x}")
            await self.pool.durable()
        if (node.mac, node.role) != (identity.mac.hex(), role):
            raise Conflict(f"{identity.mac.hex(':')} says that it is the {node.role} {node.name}, "
                           f"which is {bytes.fromhex(node.mac).hex(':')}: one of two nodes with "
                           "this serial number is wrong")
        self.nodes.forget(node.serial)
        await self.look(node.serial)

    async def watch(self, every: float = 0.5) -> None:
        """Meet announced nodes, look at nodes that tell of something unexpected, look at all nodes
        and forget old events now and then; without an end."""
        now = asyncio.get_running_loop().time
        looks = forgets = now()
        going: asyncio.Task[None] | None = None
        while True:
            for identity in await self.nodes.manager.discover(every):
                # One that must wait for a turn announces itself again meanwhile.
                if identity.mac not in self._meeting:
                    self._meeting.add(identity.mac)
                    self._background.begin(self._meets(identity))
            for serial, event in self.nodes.told():
                if serial not in self._told and not self._is_expected(serial, event):
                    self._told.add(serial)
                    self._background.begin(self._looks_at_once(serial))
            if now() >= looks and (going is None or going.done()):
                going = self._background.begin(self.look_at_all())
                looks = now() + self.limits.look
                self._forget_silent_strangers()
            if now() >= forgets:
                self._background.begin(self._forget())
                forgets = now() + self.limits.forget

    async def _looks_at_once(self, serial: int) -> None:
        self._told.discard(serial)
        await self.look(serial)

    def _is_expected(self, serial: int, event: Event) -> bool:
        """Whether an event is of something that the records know, or a task takes care of."""
        node = self.pool.node(serial)
        if event.code == Subject.PATH:
            return bool(event.argument & 1) != bool(node.dead >> event.where & 1)
        if event.code != Subject.SLOT:
            return True  # what else happens shows at a slot
        used, present, lost = (bool(event.argument >> bit & 1) for bit in (0, 1, 3))
        if node.role is Role.BOX:
            gpu = self.pool.records.get(Gpu(serial, event.where + 1).key)
            if not isinstance(gpu, Gpu):
                return not used and not present
            return bool(gpu.task) or (used, present) == (
                gpu.state in BOUND, gpu.state is not State.ABSENT)
        held = self.pool.bound_to(serial).get(event.where)
        if held is None:
            return not used
        return bool(held[0].task) or used and present and not lost

    async def _forget(self) -> None:
        # If the store cannot be written, the next time.
        with suppress(StoreError):
            await self.pool.forget(self.limits.events, self.limits.events_for)

    async def _meets(self, identity: Identity) -> None:
        try:
            await self.meet(identity)
        except Deposed:
            raise
        except PoolError as error:
            self._is_strange(identity.mac, str(error))
        else:
            self._forget_stranger(identity.mac)
        finally:
            self._meeting.discard(identity.mac)

    def _is_strange(self, mac: bytes, why: str) -> None:
        """Remember a stranger, and say so once; of too many that there are too many."""
        known = self.strangers.pop(mac, None)
        self.strangers[mac] = why
        self._heard[mac] = asyncio.get_running_loop().time()
        if len(self.strangers) > STRANGERS:
            self._forget_stranger(next(iter(self.strangers)))
            self.dropped += 1
            if not self._flood:
                self._flood = self._says("stranger", "many", f"more than {STRANGERS} strangers "
                                         "announce themselves: somebody may forge them")
        elif known is None and not self._flood:
            self._says("stranger", mac.hex(), why)

    def _forget_stranger(self, mac: bytes) -> None:
        self.strangers.pop(mac, None)
        self._heard.pop(mac, None)

    def _forget_silent_strangers(self) -> None:
        """Strangers that announce themselves no longer are none."""
        since = asyncio.get_running_loop().time() - max(self.limits.look, _ANNOUNCED)
        for mac in [mac for mac, heard in self._heard.items() if heard < since]:
            self._forget_stranger(mac)
        self._flood = self._flood and len(self.strangers) == STRANGERS

    def _says(self, kind: str, name: str, said: str) -> bool:
        """Write an event down, unless the store cannot be written."""
        try:
            with self.pool.change() as change:
                change.say(kind, name, said)
        except StoreError:
            return False
        return True

    def _hears(self, node: Node, why: str) -> None:
        """Note whether a node answers, and say when that changes."""
        if why:
            self.down[node.serial] = why
        else:
            self.down.pop(node.serial, None)
        if bool(why) != (node.serial in self._silent):
            said = f"does not answer: {why}" if why else "answers again"
            if self._says("reach", node.name, f"{node.role} {node.name} {said}"):
                self._silent ^= {node.serial}

    def rebalance(self) -> list[str]:
        """Spread all pairs of hosts and boxes over paths with a link; returns the GPUs that take
        another path from now on. Raises :exc:`StoreError`, :exc:`Deposed`."""
        return self._paths.rebalance(node for node in self.pool.all(Node) if node.role is Role.BOX)

    async def look_at_all(self) -> None:
        """Look at every node."""
        await asyncio.gather(*(self.look(node.serial) for node in list(self.pool.all(Node))))

    async def look(self, serial: int) -> None:
        """See how a node is, and mend each difference from the records."""
        async with self._looking.setdefault(serial, asyncio.Lock()):
            node = self.pool.node(serial)
            try:
                await self._look_at(node)
            except Stale:
                self._background.depose()
                raise
            except ManageError as error:
                self.nodes.forget(serial)
                self._hears(node, str(error))
            else:
                self._hears(node, "")

    async def _look_at(self, node: Node) -> None:
        self.nodes.drop_events(node)
        looks = self._look_at_box if node.role is Role.BOX else self._look_at_host
        try:
            await looks(await self._paths.look(node))
        except NoAnswer:
            if not self.nodes.is_numbered(node):
                raise
            # Perhaps a reset has taken the number.
            self.nodes.forget(node.serial)
            await looks(await self._paths.look(node))

    async def _look_at_box(self, node: Node) -> None:
        before = {gpu.slot: gpu for gpu in self.pool.gpus_of(node.serial)}
        rows, present = await self.nodes.rows(node), await self.nodes.present(node)
        dirty = await self.nodes.dirty(node)
        foreign = []
        # Each look notes steps of the machine's clock with it.
        with self.pool.change() as change:
            for slot in range(1, node.rows + 1):
                name = gpu_id(node.serial, slot)
                gpu = self._unchanged(before.get(slot), node.serial, slot)
                if gpu is None:
                    continue
                state = gpu.state
                if slot in present and state is State.ABSENT:
                    if gpu.key not in self.pool.records:
                        change.put(gpu, f"GPU {name}: a slot of a box")
                    gpu = change.move(name, Cause.FOUND, broken="", serial="")
                elif slot not in present and may(state, Cause.PULLED):
                    gpu = change.move(name, Cause.PULLED)
                elif slot in dirty and state is not State.DRAINING and may(state, Cause.DIRTY):
                    gpu = change.move(name, Cause.DIRTY)
                if (self.limits.admits and gpu.state is State.QUARANTINED and slot not in dirty
                        and gpu.cause in (Cause.FOUND, Cause.DIRTY)):
                    change.move(name, Cause.ADMITTED)
                if rows[slot - 1].used and state not in BOUND:
                    foreign.append(slot)
                    if may(state, Cause.DRIFT):
                        change.move(name, Cause.DRIFT)
        for slot in foreign:
            await self.pool.durable()
            await self.nodes.release(node, slot - 1)
        for gpu in self.pool.gpus_of(node.serial):
            if (gpu is before.get(gpu.slot) and gpu.state is State.ATTACHED and not gpu.task
                    and gpu.binding is not None):
                host, row = self.pool.node(gpu.binding.host), rows[gpu.slot - 1]
                if is_bound(row, host, gpu, gpu.binding):
                    await self._paths.mend(node, host, gpu, row)
        self._bind_again(
            gpu for gpu in self.pool.gpus_of(node.serial)
            if gpu is before.get(gpu.slot) and gpu.state is State.ATTACHED and not gpu.task
            and gpu.binding is not None
            and not is_bound(rows[gpu.slot - 1], self.pool.node(gpu.binding.host), gpu,
                             gpu.binding))

    def _unchanged(self, before: Gpu | None, box: int, slot: int) -> Gpu | None:
        """A GPU in nobody's hands whose record is as before the nodes were asked."""
        fresh = Gpu(box, slot)
        now = self.pool.records.get(fresh.key)
        if now is None and before is None:
            return fresh
        if now is not before or not isinstance(now, Gpu) or now.task:
            return None
        return now

    async def _look_at_host(self, node: Node) -> None:
        before = self.pool.bound_to(node.serial)
        rows = await self.nodes.rows(node)
        again = []
        for port, row in enumerate(rows):
            held, now = before.get(port), self.pool.bound_to(node.serial).get(port)
            if held != now:
                continue
            if now is None:
                if row.used:
                    await self.nodes.release(node, port)
                continue
            gpu, binding = now
            if gpu.task or gpu.state is not State.ATTACHED:
                continue
            if not is_bound(row, self.pool.node(gpu.box), gpu, binding):
                again.append(gpu)
                continue
            found = await self.nodes.evidence(node, port, self.pool.node(gpu.box))
            if self.pool.gpu(gpu.name) is not gpu:
                continue
            if found.lost:
                again.append(gpu)
            else:
                await self._paths.mend(node, self.pool.node(gpu.box), gpu, row)
        self._bind_again(again)

    def _bind_again(self, gpus: Iterable[Gpu]) -> None:
        """Bind GPUs again whose rows, or whose cards, were lost."""
        for gpu in gpus:
            if gpu.binding is None:
                continue
            with self.pool.change() as change:
                task = self._driver.new(change, Job.REBIND, (gpu.name,), gpu.binding.host,
                                        self.pool.clock() + self.limits.attach)
                # What was seen before says nothing of what comes.
                change.move(gpu.name, Cause.REBIND, task=task.number,
                            binding=gpu.binding.anew(gpu.generation))
            self._driver.drive(task.number)
