"""What the parts of the virtual switch tell each other about errors."""

from amaranth import *
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["HEADERS_KEPT", "ContainmentTrigger", "ErrorKind", "ErrorNote", "ErrorOrigin",
           "ErrorRecord", "ErrorReport", "HeaderReader", "LogWrite", "MalformedTlp", "PREFIXES",
           "PolicyPort", "StatusRegisters", "TriggerReason"]

#: Slots for headers of TLPs of one direction, until they are in the log.
HEADERS_KEPT = 8

#: End-to-end prefixes that a TLP may have (Max End-End TLP Prefixes).
PREFIXES = 4


class ErrorKind(enum.IntEnum, shape=unsigned(5)):
    """Bit numbers of the uncorrectable errors in AER (PCIe Base 5.0, 7.8.4.2)."""

    NONE = 0
    SURPRISE_DOWN = 5
    POISONED = 12
    UNEXPECTED = 16
    MALFORMED = 18
    UNSUPPORTED = 20
    ACS = 21
    INTERNAL = 22
    ATOMIC_BLOCKED = 24
    PREFIX_BLOCKED = 25


class ErrorNote(data.Struct):
    """What the ports on the way of a TLP have to remember of it; 0 if nothing."""

    exists: 1      #: there is something to do
    kind: ErrorKind
    advisory: 1    #: if not fatal, it is signalled as correctable (6.2.3.2.4)
    reporter: 6    #: function that found the error
    source: 6      #: function at which the TLP came in
    target: 6      #: function by which it leaves,
    crossed: 1     #: if it does
    poisoned: 1
    completion: 1
    abort: 2       #: a completion with status UR, CA
    aborted: 1     #: the request is answered with Completer Abort
    message: 2     #: ERR_NONFATAL, ERR_FATAL from a slot
    sent: 1        #: that leaves the switch; else it is stopped at ``target``


class ErrorRecord(data.Struct):
    """A note, and where the header of the TLP is kept meanwhile."""

    note: ErrorNote
    kept: 1                  #: in ``slot`` of the direction's :class:`.header_log.HeaderCapture`
    slot: range(HEADERS_KEPT)
    prefix_dwords: 3


class ErrorOrigin(enum.Enum, shape=unsigned(2)):
    """Where an error was found, and so where its header is kept."""

    HOST = 0   #: in a TLP from the root complex
    SLOT = 1   #: in a TLP from a slot
    OTHER = 2  #: in a TLP that was removed before the switch, or in none


class ErrorReport(data.Struct):
    """An error that a port reports."""

    origin: ErrorOrigin
    kind: ErrorKind
    advisory: 1
    function: 6
    kept: 1
    slot: range(HEADERS_KEPT)
    prefix_dwords: 3


class MalformedTlp(data.Struct):
    """A TLP that was removed before it came to the switch."""

    function: 6                      #: that it came to, and that reports it
    header: data.ArrayLayout(32, 4)  #: in lane order, behind prefixes; 0 if it is not known


class LogWrite(data.Struct):
    """A dword for a register that only hardware writes."""

    function: 6
    register: 10
    value: 32


class TriggerReason(enum.Enum, shape=unsigned(2)):
    """DPC Trigger Reason (PCIe Base 5.0, 7.9.15.4)."""

    ERROR = 0
    NONFATAL_MESSAGE = 1
    FATAL_MESSAGE = 2
    SOFTWARE = 3


class ContainmentTrigger(data.Struct):
    """A downstream port is to be contained, now."""

    strobe: 1
    port: 5
    reason: TriggerReason
    requester_id: 16  #: of the message


class StatusRegisters(wiring.Signature):
    """Status bits that are kept outside the memory of the configuration spaces, seen from there.

    ``value`` is about the dword ``register`` of ``function``, combinationally. ``ones`` and
    ``reset`` go with a strobe of :class:`~dxpu.mapping.ConfigUpdate`: bits of its dword that
    software clears, or that it takes its reset value.
    """

    def __init__(self):
        super().__init__({
            "function": Out(6),
            "register": Out(10),
            "value": In(32),
            "ones": Out(32),
            "reset": Out(1),
        })


class PolicyPort(wiring.Signature):
    """What AER of a function says about an error, seen from who asks; combinational.

    ``masked`` and ``fatal`` are Uncorrectable Error Mask and Severity of ``kind``, ``muted`` is the
    mask of advisory non-fatal errors.
    """

    def __init__(self):
        super().__init__({
            "function": Out(6),
            "kind": Out(ErrorKind),
            "masked": In(1),
            "fatal": In(1),
            "muted": In(1),
        })


class HeaderReader(wiring.Signature):
    """Reads a kept header, seen from the reader.

    ``word`` is dword ``dword`` of the TLP in ``slot``, prefixes included, in lane order,
    combinationally. ``free`` are strobes, by slot: the TLP that begins there is not needed any
    more.
    """

    def __init__(self):
        super().__init__({
            "slot": Out(range(HEADERS_KEPT)),
            "dword": Out(3),
            "word": In(32),
            "free": Out(HEADERS_KEPT),
        })
