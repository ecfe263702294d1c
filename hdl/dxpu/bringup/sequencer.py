"""Writes the registers of a box, as a console would, for one host."""

from dataclasses import dataclass

from amaranth import *
from amaranth.lib import enum, wiring
from amaranth.lib.wiring import In, Out

from dxpu.csr import AddressMap, RegisterPort
from dxpu.fabric.session.session import Phase
from dxpu.fabric.session.types import Mode
from dxpu.fabric.wire.format import NODE_UNASSIGNED
from dxpu.mapping.types import CommitCode

from .listener import Greeted

__all__ = ["SetUpSequencer", "StandAloneState", "Takes", "Waits"]


class StandAloneState(enum.Enum, shape=3):
    """Progress of the set-up."""

    #: The stand-alone mode is off.
    OFF = 0
    #: The box waits for a HELLO.
    LISTENS = 1
    #: Registers are being written.
    WRITES = 2
    #: The slots are bound to the host.
    BOUND = 3
    #: A register was missing, or a commit was refused (`table.result`).
    FAILED = 4
    #: A host has knocked, and must open a session under the key, or the box listens again.
    PROVES = 5


class Takes(enum.Enum, shape=2):
    """Whom a stand-alone box takes."""

    #: The first host that is heard. There is no key.
    ANYONE = 0
    #: The first host that opens a session under the key of the factory record.
    KEY = 1
    #: Nobody: the factory record is being read, or is damaged or of another version.
    NOBODY = 2


@dataclass(frozen=True)
class Waits:
    """Values of ``control.retry``, ``control.hello`` and ``control.quiet``, in units of 64 cycles;
    and ``proof``, the time that a host has to prove its key, and in which it is not heard again if
    it does not.

    Raises
    ------
    ValueError
        If a value is 0 or does not fit its register.
    """

    retry: int
    hello: int
    quiet: int
    proof: int

    def __post_init__(self):
        for name, bits in (("retry", 16), ("hello", 16), ("quiet", 20), ("proof", 21)):
            value = getattr(self, name)
            if not isinstance(value, int) or not 0 < value < 1 << bits:
                raise ValueError(f"{name} must be 1 to {(1 << bits) - 1} units of 64 cycles, "
                                 f"not {value!r}")

    @classmethod
    def for_pc(cls, hz, *, faster=1):
        """Values for a host that is a PC: 20 ms, 20 ms, 100 ms (docs/reference/host.md, "The box's
        timers"; docs/explanation/sessions.md), and 500 ms: the quiet time, and the longest wait of
        a host with the same values, 16 times 20 ms, fit into it.

        Parameters
        ----------
        hz : number
            Clock frequency of the core, in hertz.
        faster : number
            Divisor of the times; for simulations.
        """
        return cls(*(max(1, -int(-seconds * hz // (64 * faster))) for seconds in (
            20e-3, 20e-3, 100e-3, 500e-3)))


class Proof(wiring.Component):
    """The time that a host has to prove its key, and the one for which it is not heard.

    Parameters
    ----------
    time : int
        In units of 64 cycles.

    Members
    -------
    begins, stop : 1
        Strobes: the time begins, anew; it is over.
    runs : 1
        It is not over. ``begins`` takes effect a cycle later.
    tick : 1
        Strobe, each 64 cycles.
    """

    begins: In(1)
    stop: In(1)
    runs: Out(1)
    tick: Out(1)

    def __init__(self, time):
        self._time = time
        super().__init__()

    def elaborate(self, platform):
        m = Module()
        cycles, left = Signal(6), Signal(range(self._time + 1))
        m.d.sync += cycles.eq(cycles + 1)
        m.d.comb += [self.tick.eq(cycles == 0), self.runs.eq(left != 0)]
        with m.If(self.begins):
            m.d.sync += left.eq(self._time)
        with m.Elif(self.stop):
            m.d.sync += left.eq(0)
        with m.Elif(self.tick & self.runs):
            m.d.sync += left.eq(left - 1)
        return m


class SetUpSequencer(wiring.Component):
    """Binds slots of a box to a host, by writes to the proxy's registers.

    When a HELLO is heard and ``control.node`` is still 0xFFF, the sequencer writes: node number,
    the host as peer 0, the waits, boot counter, session mode 2 (the host opens the session), these
    slots as present, and for each of them a commit to that host, stream and path. Any other value
    of ``control.node`` means that somebody else sets the box up: the sequencer then writes nothing,
    and undoes nothing.

    If ``takes`` is ANYONE the host needs no key. If it is KEY, the peer gets the key, and the
    commits wait until its session is open. If that takes longer than ``waits.proof``, all is
    undone, and the next host may come; for as long again, the same host, node and stream are not
    heard. No binding was made, so the next one has the same generation.

    ``again`` undoes the set-up (rows released, peer not valid, mode 0, no node number); then the
    next host may come. The first bindings have generation 1, and the generation goes up by one with
    each further set-up, as the rows require.

    A set-up takes 8 writes, 13 with a key, and 5 accesses for each slot, some ten cycles each; a
    read each 64 cycles waits for the session. The console must not write the same registers at the
    same time.

    Parameters
    ----------
    map : :class:`~dxpu.csr.AddressMap`
        Registers of the box proxy.
    slots : int
        Number of slots that are bound, from the first one on; the others are empty.
    streams : int
        Number of streams of the box proxy.
    waits : :class:`Waits`

    Members
    -------
    bus : Out :class:`~dxpu.csr.RegisterPort`
    enable : 1
        React to HELLOs. A fall of ``enable`` does not undo a set-up.
    again : 1
        Strobe: undo the set-up. A strobe while registers are being written acts after the last
        write.
    takes : :class:`Takes`
        Counts at the moment in which a HELLO is heard. Only with registers for keys; without them
        anyone is taken.
    column, key_column : 2, 32
        Bytes 4n to 4n + 3 of the key, the first one in the lowest bits, in the same cycle. Only
        with registers for keys.
    heard, who : 1, :class:`~.listener.Greeted`
        HELLO from the :class:`~.listener.HelloListener`, or, if ``takes`` is KEY, from the
        :class:`~.knock.KnockJudge`.
    boot, boot_take : 16, 1
        Boot number from the :class:`~.boot.BootCounter`, and the strobe that takes it.
    state : :class:`StandAloneState`
    host : 12
        Node of the host that the slots are, or were last, bound to; 0 before the first host.
    """

    def __init__(self, map: AddressMap, *, slots, streams, waits: Waits):
        self._map, self._slots, self._streams, self._waits = map, slots, streams, waits
        #: Sessions can be opened under keys.
        self._has_keys = self._has_field("control.peer[0].node", "clear")
        super().__init__({
            "bus": Out(RegisterPort()), "enable": In(1), "again": In(1),
            **({"takes": In(Takes), "column": Out(2), "key_column": In(32)} if self._has_keys
               else {}),
            "heard": In(1), "who": In(Greeted), "boot": In(16), "boot_take": Out(1),
            "state": Out(StandAloneState), "host": Out(12),
        })
        self._who, self._generation, self._row = Signal(Greeted), Signal(16, init=1), Signal(6)
        self._binds = Signal()  # 1: set up, 0: undo
        #: The host must prove that it has the key.
        self._proves = Signal() if self._has_keys else Const(0)

    def _has_field(self, path, name):
        return name in {f.name for f in self._map.find(path)[0].register.fields}

    def _value(self, path, **values):
        """Value of a register, from the values of some fields."""
        register, word = self._map.find(path)[0].register, Const(0, 32)
        fields = {f.name: f for f in register.fields}
        for name, value in values.items():
            f = fields[name]
            word |= (Value.cast(value) & (1 << f.width) - 1) << f.offset
        return word[:32]

    def _program(self):
        """Steps of a set-up: path and value of each register that is written, and of the session
        that is read; number of steps common to all slots; which of these are for a key."""
        who, binds, waits = self._who, self._binds, self._waits
        operation = Cat(binds, self._row, self._generation)
        key = {
            **{f"control.key[{n}].word": {"bytes": self.key_column} for n in range(4)},
            "control.peer[0].key": {"next": 0},
        } if self._has_keys else {}
        opens = {"control.session[0].hello": {}} if self._has_keys else {}
        once = {
            "control.node": {"number": Mux(binds, who.node, NODE_UNASSIGNED)},
            "control.peer[0].node": {"number": who.host, "valid": binds, **(
                {"clear": binds & ~self._proves} if self._has_keys else {})},
            **key,
            "control.retry": {"wait": waits.retry},
            "control.hello": {"wait": waits.hello},
            "control.quiet": {"time": waits.quiet},
            "control.boot": {"counter": self.boot},
            "control.session[0].mode": {"opener": Mux(binds, Mode.ANSWERS, Mode.REGISTERS)},
            "control.present": {"slots": (1 << self._slots) - 1},
            **opens,
        }
        each = {
            "table.operation_id": {"value": operation},
            "table.target": {"node": who.host, "stream": who.stream},
            "table.paths": {"mask": Const(1, 16) << who.path},
            "table.commit": {"generation": self._generation, "row": self._row, "used": binds},
        }
        words = [(path, self._value(path, **values)) for path, values in {**once, **each}.items()]
        return words, len(once), [n for n, (path, _) in enumerate(words) if path in key | opens]

    def _address(self, path):
        """Address of a register; for a register of session 0, the same register of the host's
        session."""
        address = self._map.address(path)
        if not path.startswith("control.session[0]") or self._streams == 1:
            return address
        stride = self._map.address("control.session[1].mode") - self._map.address(
            "control.session[0].mode")
        return address + self._who.stream * stride

    def elaborate(self, platform):
        m = Module()
        bus, request = self.bus, self.bus.request.p
        program, common, of_key = self._program()
        # The step behind the program reads the result of the commit.
        step = Signal(range(len(program) + 1))
        asks, bound, failed, undo = Signal(), Signal(), Signal(), Signal()
        answer, judged = self.bus.response.p, Signal()
        code = answer.data[:len(Value.cast(CommitCode.DONE))]
        proof = Proof(self._waits.proof) if self._has_keys else None
        # The session is read; rows are bound, or may be.
        looks, rows = (Signal(), Signal()) if proof else (Const(0), Const(1))
        m.d.comb += [
            judged.eq(step == len(program)),
            request.write.eq(~asks & ~judged & ~looks),
        ]
        with m.If(asks):
            m.d.comb += request.address.eq(self._address("control.node"))
        with m.Else(), m.Switch(step):
            for n, (path, value) in enumerate(program):
                with m.Case(n):
                    m.d.comb += [request.address.eq(self._address(path)), request.data.eq(value)]
            with m.Default():
                m.d.comb += request.address.eq(self._address("table.result"))
        with m.If(self.again):
            m.d.sync += undo.eq(1)
        counts, proves = self.heard, self._proves
        if proof:
            m.submodules.proof = proof
            *of_key, opens = of_key
            who, last = self.who, self._who
            m.d.comb += [
                looks.eq((step == opens) & ~asks), self.column.eq(step - of_key[0]),
                proof.stop.eq(self.again),
            ]
            # Whoever did not prove it lets others come first.
            same = (who.host == last.host) & (who.node == last.node) & (who.stream == last.stream)
            counts &= (self.takes != Takes.NOBODY) & ~(proof.runs & same)

        with m.FSM() as fsm:
            with m.State("Idle"):
                m.d.sync += [step.eq(0), self._row.eq(0)]
                with m.If(undo):
                    m.d.sync += undo.eq(0)
                    with m.If(bound | failed):
                        m.d.sync += [self._binds.eq(0), failed.eq(0)]
                        m.next = "Request"
                with m.Elif(self.enable & counts & ~bound & ~failed):
                    m.d.sync += [self._who.eq(self.who), asks.eq(1)]
                    if proof:
                        m.d.sync += proves.eq(self.takes == Takes.KEY)
                    m.next = "Request"
            with m.State("Request"):
                m.d.comb += bus.request.valid.eq(1)
                with m.If(bus.request.ready):
                    m.next = "Answer"
            with m.State("Answer"):
                m.d.comb += bus.response.ready.eq(1)
                with m.If(bus.response.valid):
                    m.next = "Request"
                    m.d.sync += asks.eq(0)
                    with m.If(asks):
                        # Somebody else has set the box up, and may still be at it.
                        with m.If(answer.error | (answer.data[:12] != NODE_UNASSIGNED)):
                            m.next = "Idle"
                        with m.Else():
                            m.d.comb += self.boot_take.eq(1)
                            m.d.sync += [self._binds.eq(1), self.host.eq(
                                Mux(proves, self.host, self._who.host))]
                            if proof:
                                m.d.comb += proof.begins.eq(proves)
                                m.d.sync += rows.eq(~proves)
                    with m.Elif(answer.error | judged & (code != CommitCode.DONE.value)):
                        m.d.sync += [failed.eq(1), bound.eq(0)]
                        m.next = "Idle"
                    with m.Elif(~judged):
                        m.d.sync += step.eq(step + 1)
                        if proof:
                            self._prove(m, proof, step, looks, rows, undo, of_key, opens)
                    with m.Elif(self._row != self._slots - 1):
                        m.d.sync += [self._row.eq(self._row + 1), step.eq(common)]
                    with m.Else():
                        m.d.sync += [bound.eq(self._binds),
                                     self._generation.eq(self._generation + ~self._binds)]
                        m.next = "Idle"
            if proof:
                with m.State("Rest"):
                    with m.If(proof.tick):
                        m.next = "Request"

        with m.If(~fsm.ongoing("Idle") & ~asks):
            m.d.comb += self.state.eq(Mux(looks, StandAloneState.PROVES, StandAloneState.WRITES))
        with m.Elif(failed):
            m.d.comb += self.state.eq(StandAloneState.FAILED)
        with m.Elif(bound):
            m.d.comb += self.state.eq(StandAloneState.BOUND)
        with m.Elif(self.enable):
            m.d.comb += self.state.eq(StandAloneState.LISTENS)
        return m

    def _prove(self, m, proof, step, looks, rows, undo, of_key, opens):
        """The next step of a set-up that may need a key: no key for who needs none; no row before
        the session is open."""
        is_open = self.bus.response.p.data[:3] == Phase.OPEN.value
        with m.If(looks):
            with m.If(is_open):
                m.d.comb += proof.stop.eq(1)
                m.d.sync += [rows.eq(1), self.host.eq(self._who.host)]
            with m.Elif(proof.runs & ~undo):
                m.d.sync += step.eq(step)
                m.next = "Rest"
            with m.Else():
                m.d.comb += proof.begins.eq(~undo)
                m.d.sync += [step.eq(0), self._binds.eq(0)]
        with m.Elif(~(self._binds & self._proves)):
            with m.If(step == of_key[0] - 1):
                m.d.sync += step.eq(of_key[-1] + 1)
            with m.If(step == opens - 1):
                m.d.sync += step.eq(opens + 1)
                with m.If(~rows):
                    m.next = "Idle"
