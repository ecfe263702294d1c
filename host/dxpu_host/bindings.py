"""Bindings of slots and their lives: events to the box, and effects of the box's events.

Ref: docs/explanation/bindings-and-lives.md; docs/howto/hot-plug.md
"""

from enum import Enum

from dxpu.fabric.wire.format import ErrorCode, EventCode
from dxpu_model.wire import Event

__all__ = ["Binding", "Change", "State"]

LIVES = 1 << 8


class State(Enum):
    """State of a slot."""

    UNBOUND = 0
    WAITING = 1  #: BIND or RESET is on its way: the box resets the device
    READY = 2  #: TLPs may pass


class Change(Enum):
    """Change caused by an event of the box."""

    NOTHING = 0
    READY = 1
    DOWN = 2  #: end of the life: link down
    GONE = 3  #: end of the life: device gone
    FENCED = 4  #: end of the life: TLPs without credits came to the box


class Binding:
    """State of one slot.

    A binding has one life after another. Each life begins with a reset of the device, which the
    host requests by BIND or RESET with the number of the new life. TLPs pass from the RESET_DONE
    with the same number until the end of the life.
    """

    def __init__(self) -> None:
        self.state = State.UNBOUND
        self.generation = 0
        #: Number of the newest life.
        self.life = 0

    def bind(self, generation: int) -> Event:
        """The event that begins a binding."""
        self.generation = generation
        return self._begin(EventCode.BIND)

    def reset(self) -> Event:
        """The event that ends the life and begins the next; only while the slot is bound."""
        return self._begin(EventCode.RESET)

    def unbind(self) -> Event:
        """The event that ends the binding."""
        self.state = State.UNBOUND
        return Event(EventCode.UNBIND, self.generation, 0)

    def lose(self) -> None:
        """End the binding because the session is lost, without an event."""
        self.state = State.UNBOUND

    def take(self, event: Event) -> Change:
        """Handle an event of the box."""
        if self.state is State.UNBOUND or event.generation != self.generation:
            return Change.NOTHING
        if event.code == EventCode.RESET_DONE:
            if self.state is not State.WAITING or event.argument != self.life:
                return Change.NOTHING
            self.state = State.READY
            return Change.READY
        if self.state is not State.READY:
            return Change.NOTHING
        if event.code == EventCode.LINK_DOWN:
            return Change.DOWN
        if event.code == EventCode.PRESENCE and not event.argument & 1:
            return Change.GONE
        if event.code == EventCode.ERROR and event.argument == ErrorCode.OVERFLOW:
            return Change.FENCED
        return Change.NOTHING

    def _begin(self, code: EventCode) -> Event:
        self.state = State.WAITING
        self.life = (self.life + 1) % LIVES
        return Event(code, self.generation, self.life)
