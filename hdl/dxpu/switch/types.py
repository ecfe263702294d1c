"""Structures between the parts of the virtual switch."""

from amaranth import *
from amaranth.lib import data, enum

from dxpu.rows import LIFE_BITS
from dxpu.switch.errors.types import ErrorNote
from dxpu.switch.tracking.types import TrackedRequest
from dxpu.tlp.types import CompletionRequest, TlpClass, TlpInfo

__all__ = ["Answer", "ConfigRequest", "ConfigTask", "PortState", "RouterInput",
           "SlotInfo", "SlotMeta", "SlotRow", "Target", "Verdict", "separate"]


class SlotRow(data.Struct):
    """Side information of a TLP from the fabric, before it is parsed."""

    row: 6           #: row of the slot
    life: LIFE_BITS  #: life of the slot when the TLP came in
    made: 1          #: a completion made in place of the slot's completion


class SlotInfo(data.Struct):
    """Side information of a TLP from a slot."""

    port: 5
    life: LIFE_BITS  #: life of the slot when the TLP came in
    due: 1           #: came while the link was active, or answers a request of that time
    info: TlpInfo


class SlotMeta(data.Struct):
    """Side information of a TLP to a slot."""

    port: 5
    life: LIFE_BITS          #: life of the slot when the TLP was routed there
    cls: TlpClass
    request: TrackedRequest  #: only for non-posted requests


class ConfigRequest(data.Struct):
    """Access to one dword of a configuration space."""

    function: 6  #: 0 is the upstream port, n the downstream port n - 1
    register: 10
    write: 1
    enables: 4   #: byte enables of a write
    data: 32     #: byte 0 least significant


class PortState(data.Struct):
    """Fields of a port's configuration space that control traffic. All 0 after reset."""

    io: 1               #: I/O Space Enable
    memory: 1           #: Memory Space Enable
    master: 1           #: Bus Master Enable
    intx_disable: 1     #: Interrupt Disable
    power: 2            #: power state; 0 is D0
    forward_errors: 1   #: SERR# Enable of the bridge
    serr: 1             #: SERR# Enable of Command
    parity: 1           #: Parity Error Response of Command
    parity_below: 1     #: Parity Error Response Enable of the bridge
    correctable: 1      #: Correctable Error Reporting Enable
    nonfatal: 1         #: Non-Fatal Error Reporting Enable
    fatal: 1            #: Fatal Error Reporting Enable
    unsupported: 1      #: Unsupported Request Reporting Enable
    isa: 1              #: ISA Enable
    reset: 1            #: Secondary Bus Reset
    secondary: 8
    subordinate: 8
    block_atomics: 1    #: AtomicOp Egress Blocking
    block_prefixes: 1   #: End-End TLP Prefix Blocking
    msi: 1              #: MSI Enable
    max_payload: 3      #: Max_Payload_Size
    ltr: 1              #: LTR Mechanism Enable
    ari: 1              #: ARI Forwarding Enable (downstream only, as all fields from here on)
    disable: 1          #: Link Disable
    validate: 1         #: ACS Source Validation
    translation: 1      #: ACS Translation Blocking
    redirect: 1         #: ACS P2P Request Redirect
    redirect_cpl: 1     #: ACS P2P Completion Redirect
    upstream: 1         #: ACS Upstream Forwarding
    direct: 1           #: ACS Direct Translated P2P
    target_speed: 4     #: Target Link Speed
    bandwidth_interrupt: 1  #: Link Bandwidth Management Interrupt Enable
    bandwidth: 1        #: Link Bandwidth Management Status
    pme_enable: 1       #: PME Enable
    trigger: 2          #: DPC Trigger Enable (0 without DPC, as all fields from here on)
    refuse: 1           #: DPC Completion Control: UR
    dpc_interrupt: 1    #: DPC Interrupt Enable
    dpc_correctable: 1  #: DPC ERR_COR Enable
    contained: 1        #: DPC Trigger Status
    dpc_event: 1        #: DPC Interrupt Status
    surprise_masked: 1  #: Uncorrectable Error Mask: Surprise Down
    surprise_fatal: 1   #: Uncorrectable Error Severity: Surprise Down
    malformed_masked: 1  #: Uncorrectable Error Mask: Malformed TLP
    malformed_fatal: 1  #: Uncorrectable Error Severity: Malformed TLP
    abort: 1            #: completions in place of the slot have the status Completer Abort


class Target(enum.Enum, shape=unsigned(3)):
    """Destination of a TLP."""

    NOWHERE = 0
    SLOT = 1
    UPSTREAM = 2
    ALL_SLOTS = 3   #: broadcast message from upstream
    CONFIG = 4      #: a port of the switch itself
    POWER = 5       #: Set_Slot_Power_Limit for the upstream port
    MESSAGE = 6     #: message from a slot that ends in the switch


class RouterInput(data.Struct):
    """A TLP to be routed."""

    port: 5          #: slot of origin
    life: LIFE_BITS  #: life of the slot when the TLP came in
    due: 1           #: may pass whatever the present state of the link
    end_prefix: 1    #: has an end-to-end prefix
    info: TlpInfo


class Verdict(data.Struct):
    """Routing decision for a TLP."""

    target: Target
    port: 5               #: destination slot, or slot whose configuration space is accessed
    life: LIFE_BITS       #: life of the destination slot, or of the slot that gets the answer
    cls: TlpClass
    to_type0: 1           #: change type 1 to type 0 on the way
    prefix_dwords: 3
    respond: 1            #: answer with ``completion`` when the TLP is gone
    source: 5             #: slot of origin
    function: 6           #: function that is accessed, with ``CONFIG``
    register: 10
    write: 1
    enables: 4
    code: 8               #: message code
    completion: CompletionRequest
    note: ErrorNote
    splits: 1             #: as in :class:`TrackedRequest`
    returns: 1


class ConfigTask(data.Struct):
    """Side information of a configuration request to a port of the switch."""

    request: ConfigRequest
    completion: CompletionRequest
    power: 1              #: not a request: the payload is a Set_Slot_Power_Limit
    position: 4           #: position of the payload dword in the TLP


class Answer(data.Struct):
    """A completion made by the switch, and its destination."""

    port: 5
    life: LIFE_BITS
    completion: CompletionRequest


def separate(shape: type[data.Struct], name: str) -> data.Struct:
    """A view of ``shape`` whose fields are signals of their own, ``<name>_<field>``.

    Simulators order whole signals: of one signal, fields that depend on each other are a loop.
    """
    def signals(shape, name):
        for key, field in data.Layout.cast(shape):
            if isinstance(field.shape, type) and issubclass(field.shape, data.Struct):
                yield from signals(field.shape, f"{name}_{key}")
            else:
                yield Value.cast(Signal(field.shape, name=f"{name}_{key}"))

    return shape(Cat(signals(shape, name)))
