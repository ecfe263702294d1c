"""Any traffic, hostile or not, through a switch, with the expected reaction of the switch to each
TLP.

For cocotb benches whose design has a :class:`~dxpu_sim.pcie.ports.Mailbox` at each PCIe port and
behaves there as a PCIe switch.
"""

from collections import Counter, deque

import cocotb
from cocotb.queue import Queue
from cocotb.triggers import Event, Timer, with_timeout

from dxpu.tlp.types import CompletionStatus, Malformed, Routing, TlpClass, Type
from dxpu_model.switch import UP
from dxpu_model.tlp import KINDS, Tlp, classify, complete, malformed
from dxpu_model.tracker import split
from dxpu_sim.pcie.checkers import CheckFailed
from dxpu_sim.pcie.hostile import Hostile

__all__ = ["CANARY_TAG", "FIRST_ERROR_REGISTERS", "Traffic", "config", "lane", "made_by_switch",
           "shows_errors"]

#: Requests with this tag are answered with success.
CANARY_TAG = 0xAA
PME_TO_ACK = 0x1B
#: Lane of the ports' error messages, which leave in any order.
ERROR = "error message"
#: Dwords of configuration space with status bits and logs of errors.
ERROR_REGISTERS = (1, 7, 0x68 // 4, *range(0x104 // 4, 0x148 // 4))
#: Those of the first error of a port: First Error Pointer, Header Log, TLP Prefix Log. If a port
#: has several errors, it depends on the order of their reports, and a malformed TLP of a slot is
#: often reported later than what the slot sends after it. The prefixes stay when the log is freed.
FIRST_ERROR_REGISTERS = (*range(0x118 // 4, 0x12C // 4), *range(0x138 // 4, 0x148 // 4))


def config(target, register, value=None, *, type1=True, enables=15):
    """A configuration read, or a write of ``value``."""
    fmt, type = KINDS[("CfgRd" if value is None else "CfgWr") + "01"[type1]]
    return Tlp(fmt, type, length=1, requester_id=0x0008, first_be=enables, target_id=target,
               register=register, payload=b"" if value is None else value.to_bytes(4, "little"))


def lane(source, raw, out):
    """Name of a lane, in which order is kept: TLPs of one class and source, or answers to one
    source.
    """
    prefixes = classify(raw).prefix_dwords * 4
    forwarded = (out[:prefixes], out[prefixes + 1:]) == (raw[:prefixes], raw[prefixes + 1:])
    return (source if forwarded else f"answers to {source}", classify(out).cls)


def made_by_switch(messages, msis):
    """Result of :meth:`GoldenSwitch.interrupts`, as TLPs expected at the host.

    Without interrupt wires and PME_TO_Ack: :meth:`Traffic.compare_messages` checks those, and also
    error messages, as an error message that waits already is not sent twice.
    """
    errors = [raw for raw in messages if classify(raw).routing is Routing.TO_ROOT]
    return [(UP, (name, TlpClass.P), raw)
            for name, raws in ((ERROR, errors), ("interrupt", msis)) for raw in raws]


def shows_errors(raw):
    """Whether a well-formed TLP reads registers that show errors of other ports' TLPs."""
    info = classify(raw)
    return bool(info.is_config) and info.register in ERROR_REGISTERS


class Traffic:
    """Sends TLPs at all ports, and compares the TLPs that leave with the expectation.

    Requests that leave are answered as devices would, most of them with success.

    Parameters
    ----------
    boxes : dict
        Mailbox of each port: ``UP`` and the numbers of slots.
    oracle
        ``oracle.enter(side, hostile)`` returns the TLPs that must leave: (side, lane, bytes).
        ``oracle.switch`` is the :class:`~dxpu_model.switch.GoldenSwitch` inside.
        ``interrupt_seen()`` is called for each interrupt message, ``power_limit_seen(slot)`` for
        each Set_Slot_Power_Limit.
    rng : random.Random

    Attributes
    ----------
    problems : list of str
        Differences so far.
    """

    def __init__(self, boxes, oracle, rng):
        self.boxes, self.oracle, self.rng = boxes, oracle, rng
        self.problems = []
        self._expected = {side: {} for side in boxes}
        # TLPs that wait to be sent, in the order in which the oracle saw them.
        self._queues = {side: Queue(4) for side in boxes}
        #: Number of TLPs that must still leave.
        self.left = 0
        self._arrived = Event()
        # Interrupt wires seen by the host; PME_Turn_Off and PME_TO_Ack so far; possible IDs of the
        # latter.
        self._wires = [False] * 4
        self._asked, self._acknowledged = 0, 0
        self._identifiers = set()
        # Error messages of the ports still to come, and those that came.
        self._errors, self._told = Counter(), set()
        for side, box in boxes.items():
            box.received.append(lambda record, side=side: self._received(side, record))
            cocotb.start_soon(self._sender(side))

    async def send(self, side, hostile):
        """Send a TLP and expect the reaction of the oracle."""
        switch = self.oracle.switch
        before, turn_offs = switch.captured, switch.turn_offs
        leaving = self.oracle.enter(side, hostile)
        self._identifiers = {before, switch.captured}
        # Without any link a PME_Turn_Off goes nowhere, and is answered all the same.
        self._asked += switch.turn_offs - turn_offs
        for to, name, raw in leaving:
            if name[0] == ERROR:
                self._errors[raw] += 1
                continue
            self._expected[to].setdefault(name, deque()).append(raw)
            self.left += 1
        await self._queues[side].put(hostile)

    async def fair(self, side, tlp):
        """Send a well-formed TLP of the bench itself."""
        await self.send(side, Hostile(tlp.pack(), False, "fair"))

    async def _sender(self, side):
        while True:
            await self._transmit(side, await self._queues[side].get())

    async def _transmit(self, side, hostile):
        await self.boxes[side].send(
            hostile.raw, **({"discard": True} if hostile.discard else {}))

    @staticmethod
    def _by_switch(side, record):
        """Whether the switch made this message by itself, at an unpredictable time."""
        return record.raw[0] in (0x34, 0x35) if side == UP else record.raw[0] == 0x74

    def _received(self, side, record):
        if side == UP and record.raw[0] in (0x34, 0x35):
            self._made_by_switch(record)
            return
        if side != UP and record.raw[0] == 0x74:
            self._slot_power_limit(side, record.raw)
            return
        if side == UP and self._errors[record.raw] and record.cls == TlpClass.P.value:
            self._errors[record.raw] -= 1
            self._told.add(record.raw)
            return
        for (name, cls), queue in self._expected[side].items():
            if queue and queue[0] == record.raw:
                queue.popleft()
                self.left -= 1
                if name == "interrupt":
                    self.oracle.interrupt_seen()
                if record.cls != cls.value:
                    self.problems.append(f"left on the stream of class {record.cls}: "
                                         f"{record.raw.hex()}")
                break
        else:
            where = [f"place {list(queue).index(record.raw)} of {name} at {other}, behind "
                     f"{queue[0].hex()}" for other, queues in self._expected.items()
                     for name, queue in queues.items() if record.raw in queue]
            self.problems.append(f"unexpected at {side}: {record.raw.hex()}; {where}")
            self._arrived.set()
            return
        if cls is TlpClass.NP:
            cocotb.start_soon(self._answer(side, record.raw))
        elif not self.left:
            self._arrived.set()

    def _made_by_switch(self, record):
        """Check interrupt wires, and the answer to PME_Turn_Off.

        Both depend on the order in which TLPs of several ports meet. Wires must alternate, and have
        the right state in the end. The number of answers is from one to the number of PME_Turn_Off.
        """
        tlp = Tlp.unpack(record.raw)
        code = tlp.message_code
        bare = Tlp(1, tlp.type, requester_id=tlp.requester_id, message_code=code)
        wrong = (record.raw != bare.pack() or tlp.requester_id not in self._identifiers
                 or record.cls != TlpClass.P.value)
        if tlp.type == Type.MESSAGE_LOCAL and 0x20 <= code < 0x28:
            wrong |= self._wires[code & 3] == (code < 0x24)
            self._wires[code & 3] = code < 0x24
            self.oracle.interrupt_seen()
        else:
            wrong |= code != PME_TO_ACK or tlp.type != Type.MESSAGE_GATHER
            self._acknowledged += 1
        if wrong:
            self.problems.append(f"a wrong message at the host: {record.raw.hex()}")

    def _slot_power_limit(self, slot, raw):
        """Check a port's power limit for its slot; its time, when the link comes up, is not
        checked."""
        tlp, function = Tlp.unpack(raw), self.oracle.switch.down[slot]
        data = bytes([function.get("Slot Capabilities", "Slot Power Limit Value"),
                      function.get("Slot Capabilities", "Slot Power Limit Scale"), 0, 0])
        bare = Tlp(3, Type.MESSAGE_LOCAL, length=1, message_code=0x50, payload=data,
                   requester_id=tlp.requester_id & 0xFF00 | slot << 3)
        self.oracle.power_limit_seen(slot)
        if raw != bare.pack():
            self.problems.append(f"a wrong message at slot {slot}: {raw.hex()}")

    async def _answer(self, side, raw):
        for completion in self._completions(side, Tlp.unpack(raw)):
            await self.fair(side, completion)
        if not self.left:
            self._arrived.set()

    def _completions(self, side, request):
        """Answer of a device, or a root complex, to a request."""
        me = 0 if side == UP else self.oracle.switch.down[side].buses()[0] << 8
        refused = request.tag != CANARY_TAG and self.rng.random() < 0.3
        # UR for an irregular AtomicOp: a real completer would not answer, and the slot would be
        # lost.
        irregular = malformed(request.pack(), completer=True) is Malformed.ATOMIC
        if refused or irregular or request.length > 64:
            return [complete(request, CompletionStatus.UR, me)]
        if request.kind.startswith("MRd"):
            # A completion larger than the port accepts is dropped, and its request stays open.
            boundaries = self.oracle.switch.max_payload(side) // 64
            return split(request, me, [boundaries] * request.length)
        count = complete(request, CompletionStatus.SC, me).byte_count
        data = b"" if "Wr" in request.kind else self.rng.randbytes(count)
        return [complete(request, CompletionStatus.SC, me, data)]

    async def settle(self):
        """Wait until all expected TLPs have come, including answers to answers."""
        while self.left and not self.problems:
            self._arrived.clear()
            try:
                await with_timeout(self._arrived.wait(), 300, "us")
            except TimeoutError:
                self.problems += [f"did not leave at {side}: {queue[0].hex()} and "
                                  f"{len(queue) - 1} more of {name}"
                                  for side, queues in self._expected.items()
                                  for name, queue in queues.items() if queue]
                self.problems += await self.diagnose()
        self.check()

    async def drain(self, ns):
        """Wait until the design has taken everything, then for TLPs that leave, and ``ns`` more."""
        while any(queue.qsize() for queue in self._queues.values()) or not all(
                box.idle for box in self.boxes.values()):
            await Timer(200, "ns")
        await self.settle()
        await Timer(ns, "ns")
        await self.settle()

    async def diagnose(self):
        """Further findings when TLPs do not leave."""
        return []

    def check(self):
        """Fail if anything went wrong so far."""
        if self.problems:
            raise CheckFailed("\n".join(self.problems[:10]))

    async def acknowledge(self, slots):
        """Answer PME_Turn_Off from all ``slots``, so that no PME_Turn_Off stays open."""
        # When this read is answered, all PME_Turn_Off have left.
        captured = self.oracle.switch.captured
        await self.fair(UP, config(captured & 0xFFF8, 0, type1=False))
        await self.settle()
        for slot in slots:
            bus = self.oracle.switch.down[slot].buses()[0]
            await self.fair(slot, Tlp(1, Type.MESSAGE_GATHER, message_code=PME_TO_ACK,
                                      requester_id=bus << 8))

    def compare_messages(self):
        """Fail if interrupt wires, answers to PME_Turn_Off, or error messages are wrong.

        Only when nothing is on its way, and after :meth:`acknowledge`.
        """
        if self._wires != self.oracle.switch.wires:
            self.problems.append(f"interrupt wires: {self._wires}, not {self.oracle.switch.wires}")
        # A slot whose requester ID is blocked cannot answer: then the PME_Turn_Off stays open.
        open = self.oracle.switch.asked_to_turn_off
        if not (self._asked > 0 and not open) <= self._acknowledged <= self._asked:
            self.problems.append(f"{self._acknowledged} PME_TO_Ack for {self._asked} PME_Turn_Off")
        if not open:
            self._asked = self._acknowledged = 0
        self.problems += [f"an error message is missing: {raw.hex()}"
                          for raw in +self._errors if raw not in self._told]
        self._errors.clear()
        self._told.clear()
        self.check()
