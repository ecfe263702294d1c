"""Bindings: a slot has one life after another, and nothing of one life reaches the next.

A slot of a box is bound to a host, released, bound again, to the same host or to another. The
manager writes the row of the box and the rows of the hosts, each at any time; the model does not
assume that the manager waits for anything. The rows of one life carry the same generation, each
life a new generation.

A host's row sends EVENT BIND with the generation, and UNBIND, in the same numbered stream as its
TLPs. The box takes a TLP only between the two events, and only if the generation in BIND equals the
generation of the box's own row. The box answers READY in the stream to the host. The host takes the
slot's TLPs only if the generation in READY equals the generation of the *host's* row. TLPs that
wait in the box for the GPU are dropped with the row. Credit limits of the box are outside the
streams: they may come late, and repeatedly. Each limit names the generation.

Streams lose nothing and keep order, as :mod:`.session` and :mod:`.arq` show. In the model a TLP
carries the life in which it was made: the generation of its maker's row.
"""

from typing import NamedTuple

from .search import Model, can_reach

__all__ = ["FLAWS", "Bindings"]

#: Flawed designs: name and behaviour.
FLAWS = {
    "no generation": "BIND, UNBIND and READY say nothing about which life they begin or end",
    "1-bit generation": "the generation is modulo 2",
    "BIND not in the stream": "BIND, UNBIND and READY have no number: they may overtake",
    "no BIND": "a TLP is taken if the row is bound to the host it comes from",
    "source not checked": "the box does not look at which host a frame comes from",
    "queue not flushed": "what waits for the GPU stays when the row goes",
    "limit without generation": "a credit limit acts in whatever life it arrives",
}

HOSTS = ("host A", "host B")


class State(NamedTuple):
    """Rows, streams, and the knowledge of each end."""

    written: tuple[int, int, int] = (0, 0, 0)  #: commands done so far on rows of box, A, B
    told_box: tuple[int, int] = (0, 0)  #: generation of the last BIND from each host
    told_host: tuple[int, int] = (0, 0)  #: generation of the last READY at each host
    down: tuple[tuple, tuple] = ((), ())  #: from each host: ("BIND", 1), ("TLP", 1), ...
    up: tuple[tuple, tuple] = ((), ())  #: to each host
    queue: tuple[int, ...] = ()  #: lives of the TLPs waiting for the GPU
    ready: bool = False  #: READY was sent in this life
    limits: tuple[frozenset, frozenset] = (frozenset(), frozenset())  #: under way to each host
    fault: str | None = None


class Bindings(Model):
    """One slot, two hosts, and some lives.

    Parameters
    ----------
    owners : str
        owners : str
            Host of each life, such as ``"ABA"``.
        room : int
            Capacity of a stream, in frames.
        flaw : str
            None or a key of :data:`FLAWS`.
    """

    def __init__(self, *, owners, room=3, flaw=None):
        if not owners or set(owners) - set("AB"):
            raise ValueError(f"owners must be a string of A and B, not {owners!r}")
        if flaw is not None and flaw not in FLAWS:
            raise ValueError(f"flaw must be None or one of {', '.join(FLAWS)}, not {flaw!r}")
        self.owners, self.room, self.flaw = owners, room, flaw
        # lives that each row sees: the box all lives, a host its own lives
        lives = range(1, len(owners) + 1)
        self.lives = [list(lives), *([n for n in lives if owners[n - 1] == host] for host in "AB")]
        self._opens: dict[State, bool] = {}

    def initial(self):
        return State()

    def row(self, state, which):
        """Life in a row; 0 if unbound. Commands bind and release in turns."""
        done = state.written[which]
        return self.lives[which][done // 2] if done % 2 else 0

    def actions(self, state):
        yield from self._write(state, 0, "box")
        for host, name in enumerate(HOSTS):
            yield from self._write(state, host + 1, name)
            life = self.row(state, host + 1)
            if life:
                yield f"{name}: TLP", self._send(state, "down", host, ("TLP", life))
            for place, frame in self._arriving(state.down[host]):
                yield self._at_box(self._without(state, "down", host, place), host, *frame)
            for place, frame in self._arriving(state.up[host]):
                yield self._at_host(self._without(state, "up", host, place), host, *frame)
        for host in (0, 1):
            if self._open(state, host):
                life = self.row(state, 0)
                if not state.ready and len(state.up[host]) < self.room:
                    yield "box: READY", self._send(state, "up", host, ("READY", life))._replace(
                        ready=True)
                yield "GPU: TLP", self._send(state, "up", host, ("TLP", life))
                yield f"box: limit of life {life}", state._replace(
                    limits=_set(state.limits, host, state.limits[host] | {life}))
            yield from self._take_limits(state, host)
        if state.queue:
            after = state._replace(queue=state.queue[1:])
            if state.queue[0] != self.row(state, 0):
                after = after._replace(fault=f"a TLP of life {state.queue[0]} is at the GPU in "
                                             f"{self._name(self.row(state, 0))}")
            yield "GPU takes a TLP", after

    def _write(self, state, which, name):
        """The manager's next command for a row."""
        if state.written[which] == 2 * len(self.lives[which]):
            return
        old = self.row(state, which)
        state = state._replace(written=_set(state.written, which, state.written[which] + 1))
        new = self.row(state, which)
        if which:
            frame = ("BIND", new) if new else ("UNBIND", old)
            if len(state.down[which - 1]) >= self.room:
                return  # the event waits for its place in the stream, and the row for the event
            state = self._send(state, "down", which - 1, frame)
        else:
            state = state._replace(
                ready=False, queue=state.queue if self.flaw == "queue not flushed" else ())
        yield f"manager: {name}'s row {f'bound, life {new}' if new else 'released'}", state

    # The box

    def _open(self, state, host):
        """Whether the box takes TLPs of this host."""
        life = self.row(state, 0)
        if not life or (self.owners[life - 1] != "AB"[host]
                        and self.flaw != "source not checked"):
            return False
        return self.flaw == "no BIND" or self._same(state.told_box[host], life)

    def _at_box(self, state, host, kind, life):
        name = f"box takes {kind}" + (f" {life}" if kind != "TLP" else f" of life {life}")
        if kind == "BIND":
            return name, state._replace(told_box=_set(state.told_box, host, life))
        if kind == "UNBIND":
            if self._same(state.told_box[host], life):
                state = state._replace(told_box=_set(state.told_box, host, 0))
            return name, state
        if not any(self._open(state, h) for h in
                   ((0, 1) if self.flaw == "source not checked" else (host,))):
            return f"{name}: dropped", state
        if life != self.row(state, 0):
            return name, state._replace(
                fault=f"a TLP of life {life} is taken in {self._name(self.row(state, 0))}")
        return name, state if state.queue else state._replace(queue=(life,))

    # A host

    def _at_host(self, state, host, kind, life):
        name = f"{HOSTS[host]} takes {kind}" + (f" {life}" if kind != "TLP" else f" of life {life}")
        row = self.row(state, host + 1)
        if kind == "READY":
            return name, state._replace(told_host=_set(state.told_host, host, life))
        taken = row and (self.flaw == "no BIND" or self._same(state.told_host[host], row))
        if not taken:
            return f"{name}: dropped", state
        if life != row:
            return name, state._replace(
                fault=f"a TLP of life {life} is taken in {self._name(row)}")
        return name, state

    def _take_limits(self, state, host):
        """Take a limit with the host's own generation: correct, so the state stays the same."""
        row = self.row(state, host + 1)
        for life in sorted(state.limits[host]):
            if row not in (0, life) and self.flaw == "limit without generation":
                yield f"{HOSTS[host]} takes limit of life {life}", state._replace(
                    fault=f"a limit of life {life} acts in {self._name(row)}")

    def _same(self, told, life):
        if self.flaw == "no generation":
            return bool(told)
        return bool(told) and (told == life if self.flaw != "1-bit generation"
                               else told % 2 == life % 2)

    @staticmethod
    def _name(life):
        return f"life {life}" if life else "no life"

    # Streams

    def _send(self, state, way, host, frame):
        """Append a frame. A TLP behind a TLP of the same life adds no state; a full stream
        waits."""
        streams = getattr(state, way)
        stream = streams[host]
        if len(stream) >= self.room or (stream and stream[-1] == frame and frame[0] == "TLP"):
            return state
        return state._replace(**{way: _set(streams, host, (*stream, frame))})

    def _arriving(self, stream):
        """Frames that may arrive next: the first; with the flaw, also any that is not a TLP."""
        for place, frame in enumerate(stream):
            if place == 0 or (self.flaw == "BIND not in the stream" and (
                    frame[0] != "TLP" or all(f[0] != "TLP" for f in stream[:place]))):
                yield place, frame

    @staticmethod
    def _without(state, way, host, place):
        streams = getattr(state, way)
        stream = streams[host]
        return state._replace(**{way: _set(streams, host, stream[:place] + stream[place + 1:])})

    # What must hold

    def wrong(self, state):
        if state.fault is None and not self._can_open(state):
            return "both rows are bound to each other, and the slot does not open"
        return state.fault

    def _can_open(self, state):
        """Whether box and host, with rows of one life, reach a state in which both take TLPs."""
        life = self.row(state, 0)
        host = "AB".index(self.owners[life - 1]) if life else 0
        if not life or self.row(state, host + 1) != life:
            return True
        known = self._opens.get(state)
        if known is None:
            known = self._opens[state] = can_reach(_Unmanaged(self), state, lambda s: (
                self._open(s, host) and s.told_host[host] == life))
        return known


class _Unmanaged(Model):
    """The same model without manager and without new TLPs."""

    def __init__(self, model):
        self.model = model

    def actions(self, state):
        for name, after in self.model.actions(state):
            if after.written == state.written and not name.endswith(": TLP"):
                yield name, after


def _set(values, index, value):
    return (*values[:index], value, *values[index + 1:])
