"""Structures and interfaces for errors, between the parts of the virtual switch."""

from amaranth import *
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import In, Out

__all__ = ["HEADERS_KEPT", "ContainmentTrigger", "ErrorKind", "ErrorNote", "ErrorOrigin",
           "ErrorRecord", "ErrorReport", "HeaderReader", "LogWrite", "MalformedTlp", "PREFIXES",
           "PolicyPort", "StatusRegisters", "TriggerReason"]

#: Capacity for TLP headers of one direction that are not yet in the log.
HEADERS_KEPT = 8

#: Largest number of end-to-end prefixes of a TLP (Max End-End TLP Prefixes).
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
    """Effects of a TLP on the status of the ports on its way; 0 without an effect."""

    exists: 1      #: there is an effect
    kind: ErrorKind
    advisory: 1    #: if not fatal, signalled as correctable (6.2.3.2.4)
    reporter: 6    #: function that found the error
    source: 6      #: function at which the TLP came in
    target: 6      #: function by which the TLP leaves, if ``crossed``
    crossed: 1     #: the TLP leaves by another function
    poisoned: 1
    completion: 1
    abort: 2       #: the TLP is a completion with status UR, CA
    aborted: 1     #: the request is answered with Completer Abort
    message: 2     #: the TLP is an ERR_NONFATAL, ERR_FATAL from a slot
    sent: 1        #: the message leaves the switch; otherwise it stops at ``target``


class ErrorRecord(data.Struct):
    """An error note, and the place of the TLP's header until it is logged."""

    note: ErrorNote
    kept: 1                  #: in ``slot`` of the direction's :class:`.header_log.HeaderCapture`
    slot: range(HEADERS_KEPT)
    prefix_dwords: 3


class ErrorOrigin(enum.Enum, shape=unsigned(2)):
    """Origin of an error, which determines where its header is kept."""

    HOST = 0   #: in a TLP from the root complex
    SLOT = 1   #: in a TLP from a slot
    OTHER = 2  #: in a TLP removed before the switch, or without a TLP


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
    """A TLP that was removed before it reached the switch."""

    function: 6                      #: function that received the TLP, and reports it
    header: data.ArrayLayout(32, 4)  #: in lane order, behind prefixes; 0 if unknown


class LogWrite(data.Struct):
    """A write of a dword to a register that only hardware writes."""

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
    """Request to contain a downstream port now."""

    strobe: 1
    port: 5
    reason: TriggerReason
    requester_id: 16  #: requester ID of the message


class StatusRegisters(wiring.Signature):
    """Status bits outside the memory of the configuration spaces, seen from the configuration
    spaces.

    ``value`` belongs to the dword ``register`` of ``function``, combinationally. ``ones`` and
    ``reset`` come with a strobe of :class:`~dxpu.mapping.ConfigUpdate`: bits of its dword that
    software clears, or reset of the dword to its initial value.
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
    """AER settings of a function for an error, seen from the requester; combinational.

    ``masked`` and ``fatal`` are the bits of ``kind`` in Uncorrectable Error Mask and Severity.
    ``muted`` is the mask of advisory non-fatal errors.
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
    """Read port of the kept headers, seen from the reader.

    ``word`` is dword ``dword`` of the TLP in ``slot``, prefixes included, in lane order,
    combinationally. ``free`` are strobes, by slot: the TLP that begins in the slot is no longer
    needed.
    """

    def __init__(self):
        super().__init__({
            "slot": Out(range(HEADERS_KEPT)),
            "dword": Out(3),
            "word": In(32),
            "free": Out(HEADERS_KEPT),
        })
