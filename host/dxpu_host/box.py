"""State of one box at a host: the link to the box, and its bound slots.

No sockets and no clocks: input are frames, commands and the time, output are frames and events.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from dxpu.fabric.wire.format import (
    COUNT_MAX, CREDIT_BYTES, HEADER_BYTES, RECORD_ALIGN, RECORD_CRC_BYTES, EventCode,
)
from dxpu_model.wire import Credit, Event, Frame, Tlps

from .bindings import Binding, Change, State
from .credits import GRANTS, Accounts, Entries, Grants
from .errors import SessionLost, SlotLost
from .link import Address, Closed, EventCame, Happened, LimitsCame, Link, Opened, TlpsCame
from .queues import ClassQueues, Waiting, class_of, units_of
from .session import LARGEST_FRAME, TagSource
from .timers import Timers

if TYPE_CHECKING:
    from dxpu_model.opening import Keys

__all__ = ["Box", "BoxEvent", "Slot", "SlotDown", "SlotReady", "TlpCame"]


@dataclass(frozen=True)
class SlotReady:
    """A life of the slot has begun: its device was reset, and TLPs pass."""

    slot: int


@dataclass(frozen=True)
class SlotDown:
    """A life is over. ``lost``: the session and the binding are over as well; otherwise the box
    reports when the device is back.
    """

    slot: int
    reason: str
    lost: bool


@dataclass(frozen=True)
class TlpCame:
    """A TLP of the slot has come. ``done()`` must be called after it was handled: until then the
    TLP occupies credits granted to the box.
    """

    slot: int
    tlp: bytes
    done: Callable[[], None]


#: Reasons for the end of a life.
_REASONS = {
    Change.DOWN: "its link is down", Change.GONE: "the device is gone",
    Change.FENCED: "the box has reset it, as TLPs came that it had granted no credits for",
}

BoxEvent = SlotReady | SlotDown | TlpCame


@dataclass
class Slot:
    """A slot with a present or former binding."""

    number: int
    accounts: Accounts
    grants: Grants
    binding: Binding = field(default_factory=Binding)
    queues: ClassQueues = field(default_factory=ClassQueues)


class Box:
    """A session with a box, and the slots behind it.

    In each turn: :meth:`receive` the frames that came, then :meth:`turn`, then send the frames of
    :meth:`take`.

    Parameters
    ----------
    address : :class:`~.link.Address`
    timers : :class:`~.timers.Timers`
    tags : :class:`~.session.TagSource`
    boot : int
        Boot counter of HELLO.
    now : float
        Present time, in seconds.
    packing : int
        Largest Ethernet payload, in bytes, up to which TLPs share a frame.
    grants : three pairs of int
        Headers and units of 16 bytes that each slot may have under way to the host, for each class.
    """

    #: Classes of the parts, for tests.
    LINK, ACCOUNTS = Link, Accounts

    def __init__(self, address: Address, *, timers: Timers, tags: TagSource, boot: int, now: float,
                 packing: int = 1500, grants: Sequence[tuple[int, int]] = GRANTS,
                 keys: "Keys | None" = None) -> None:
        self._timers, self._packing, self._initial = timers, packing, grants
        self.slots: dict[int, Slot] = {}
        #: Number of TLPs dropped: of slots without a life, or without credits.
        self.dropped = 0
        self._commands: deque[tuple[Slot, Event]] = deque()
        self._last_command: int | None = None  #: number of its frame
        self._turn = 0
        self.link = self.LINK(address, timers=timers, tags=tags, boot=boot, limits=self,
                              now=now, keys=keys)

    @property
    def open(self) -> bool:
        """Whether the session is open."""
        return self.link.open

    # Limits, for the link.

    def extension(self, slot: int) -> Credit | None:
        """A limit of the slot for the next frame."""
        known = self.slots.get(slot)
        return known.grants.extension() if known else None

    def entries(self, slot: int) -> Entries:
        """All limits of a slot; without the slot, entries that no receiver accepts as limits."""
        known = self.slots.get(slot)
        if known is None:
            return Credit(0), Credit(1), Credit(2)
        known.grants.told()
        return known.grants.entries()

    # Commands.

    def bind(self, number: int, generation: int) -> None:
        """Send BIND; :class:`SlotReady` follows.

        Raises
        ------
        SessionLost
            The session is not open.
        """
        self._need_session()
        slot = self.slots.get(number)
        if slot is None:
            slot = self.slots[number] = Slot(number, self.ACCOUNTS(),
                                             Grants(self._initial, self._timers.refresh))
        self._end_life(slot)
        self._commands.append((slot, slot.binding.bind(generation)))

    def unbind(self, number: int) -> None:
        """Send UNBIND, and take no more TLPs; :meth:`settled` tells when UNBIND has arrived."""
        slot = self._bound(number)
        self._end_life(slot)
        self._commands.append((slot, slot.binding.unbind()))

    def reset(self, number: int) -> None:
        """Send RESET: the box resets the device, and :class:`SlotReady` follows."""
        slot = self._bound(number)
        self._end_life(slot)
        self._commands.append((slot, slot.binding.reset()))

    def send(self, number: int, tlp: bytes, sent: Callable[[], None] | None = None) -> None:
        """Send a TLP to a slot as soon as credits allow; ``sent`` is called when the TLP has left.

        Raises
        ------
        SlotLost
            The slot has no life.
        """
        slot = self.slots.get(number)
        if slot is None or slot.binding.state is not State.READY:
            raise SlotLost(f"{self._name(number)} is not ready")
        slot.queues.put(tlp, sent)

    def bound(self, number: int) -> bool:
        """Whether the slot is bound, with a device or without."""
        slot = self.slots.get(number)
        return slot is not None and slot.binding.state is not State.UNBOUND

    def settled(self) -> bool:
        """Whether all commands have arrived at the box."""
        return not self._commands and (self._last_command is None
                                       or not self.link.sender.has(self._last_command))

    def _need_session(self) -> None:
        if not self.open:
            raise SessionLost(f"no session with box {self.link.address.peer:#05x}")

    def _bound(self, number: int) -> Slot:
        if not self.bound(number):
            raise SlotLost(f"{self._name(number)} is not bound")
        return self.slots[number]

    def _name(self, number: int) -> str:
        return f"slot {number} of box {self.link.address.peer:#05x}"

    @staticmethod
    def _end_life(slot: Slot) -> None:
        slot.accounts.end()
        slot.grants.end()
        slot.queues.clear()

    # Input.

    def receive(self, frame: Frame, now: float) -> list[BoxEvent]:
        """Handle a valid frame of this box and stream; returns events."""
        return [event for happened in self.link.receive(frame, now)
                for event in self._happens(happened, now)]

    def _happens(self, happened: Happened, now: float) -> Iterator[BoxEvent]:
        if isinstance(happened, Closed):
            yield from self._lose(happened.reason)
        elif isinstance(happened, TlpsCame):
            yield from self._tlps(happened, now)
        elif isinstance(happened, EventCame):
            yield from self._event(happened, now)
        elif isinstance(happened, LimitsCame):
            slot = self.slots.get(happened.slot)
            if slot is not None:
                slot.accounts.learn(happened.ack, happened.entries)
        else:
            assert isinstance(happened, Opened)

    def _lose(self, reason: str) -> Iterator[BoxEvent]:
        self._commands.clear()
        self._last_command = None
        for slot in self.slots.values():
            if slot.binding.state is not State.UNBOUND:
                slot.binding.lose()
                self._end_life(slot)
                yield SlotDown(slot.number, f"{self._name(slot.number)}: session lost: {reason}",
                               True)

    def _tlps(self, came: TlpsCame, now: float) -> Iterator[BoxEvent]:
        slot = self.slots.get(came.slot)
        for tlp in came.tlps:
            if slot is None or slot.binding.state is not State.READY:
                self.dropped += 1
                continue
            cls, units = class_of(tlp), units_of(tlp)
            if not slot.grants.take(cls, units):
                self.dropped += 1
                continue
            yield TlpCame(came.slot, tlp, partial(self._done, slot, slot.binding.life, cls, units,
                                                  now))

    @staticmethod
    def _done(slot: Slot, life: int, cls: int, units: int, now: float) -> None:
        if slot.binding.state is State.READY and slot.binding.life == life:
            slot.grants.release(cls, units, now)

    def _event(self, came: EventCame, now: float) -> Iterator[BoxEvent]:
        slot = self.slots.get(came.slot)
        change = Change.NOTHING if slot is None else slot.binding.take(came.event)
        if slot is None or change is Change.NOTHING:
            self.link.counters["ignored_event"] += 1
        elif change is Change.READY:
            slot.grants.begin(slot.binding.generation, now)
            yield SlotReady(slot.number)
        else:
            self.reset(slot.number)
            yield SlotDown(slot.number, f"{self._name(slot.number)}: {_REASONS[change]}", False)

    # Output.

    def turn(self, now: float) -> list[BoxEvent]:
        """Let timers act, and build the frames that are due; returns events."""
        events = [event for happened in self.link.tick(now)
                  for event in self._happens(happened, now)]
        while self._commands and self.link.room:
            slot, event = self._commands.popleft()
            sent = self.link.send(slot.number, event, now)
            self._last_command = sent.seq
            if event.code != EventCode.UNBIND:
                slot.accounts.begin(event.generation, sent.seq)
        if not self._commands:
            self._send_tlps(now)
        self.link.reply(now)
        if self.open:
            for slot in self.slots.values():
                if slot.grants.due(now):
                    self.link.tell(slot.number)
        return events

    def _send_tlps(self, now: float) -> None:
        """Build frames, one slot after the other, while TLPs may leave."""
        slots = list(self.slots.values())
        idle = 0
        while slots and idle < len(slots) and self.link.room:
            slot = slots[self._turn % len(slots)]
            self._turn += 1
            tlps = self._pack(slot)
            idle = 0 if tlps else idle + 1
            if tlps:
                self.link.send(slot.number, Tlps(tlps), now)

    def _pack(self, slot: Slot) -> tuple[bytes, ...]:
        """TLPs of the slot for one frame; a TLP above the packing limit goes alone."""
        tlps: list[bytes] = []
        left = min(self._packing, LARGEST_FRAME - 14) - (HEADER_BYTES - 14) - CREDIT_BYTES
        while len(tlps) < COUNT_MAX:
            head: Waiting | None = slot.queues.first(slot.accounts.allows)
            if head is None:
                break
            size = len(head.tlp) + RECORD_CRC_BYTES
            left -= size + -size % RECORD_ALIGN
            if tlps and left < 0:
                break
            slot.accounts.spend(head.cls, head.units)
            slot.queues.take(head)
            tlps.append(head.tlp)
        return tuple(tlps)

    def take(self) -> list[bytes]:
        """Frames to be sent, without FCS."""
        return self.link.take()

    def deadline(self) -> float:
        """Time of the next turn, if nothing comes before."""
        parts = [self.link.deadline()]
        if self.open:
            parts += [when for slot in self.slots.values()
                      if (when := slot.grants.deadline()) is not None]
        return min(parts)
