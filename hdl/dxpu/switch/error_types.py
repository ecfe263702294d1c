"""What the parts of the virtual switch tell each other about errors."""

from amaranth import *
from amaranth.lib import data, enum

__all__ = ["Containment", "ErrorKind", "ErrorNote", "ErrorRecord", "MalformedTlp"]


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


class Containment(enum.Enum, shape=unsigned(2)):
    """What a record says about Downstream Port Containment of the reporter (6.2.10)."""

    NONE = 0
    MESSAGE = 1   #: triggered by ERR_NONFATAL or ERR_FATAL, which was discarded
    SOFTWARE = 2  #: software has triggered it; that is to be announced


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
    contain: Containment


class ErrorRecord(data.Struct):
    """A note, and the header of the TLP."""

    note: ErrorNote
    header: data.ArrayLayout(32, 4)  #: in lane order; the fourth unspecified if there are three


class MalformedTlp(data.Struct):
    """A TLP that was removed before it came to the switch."""

    function: 6                      #: that it came to, and that reports it
    header: data.ArrayLayout(32, 4)  #: in lane order, behind prefixes; 0 if it is not known
