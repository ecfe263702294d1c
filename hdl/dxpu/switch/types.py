"""What the parts of the virtual switch tell each other."""

from amaranth import *
from amaranth.lib import data, enum

from dxpu.tlp.types import TlpClass, TlpInfo

__all__ = ["ConfigEvent", "ConfigRequest", "ConfigUpdate", "LookupKind", "LookupRequest",
           "LookupResult", "PortState", "SlotInfo", "SlotMeta", "UpstreamState"]


class LookupKind(enum.Enum, shape=unsigned(2)):
    MEMORY = 0
    IO = 1
    BUS = 2


class LookupRequest(data.Struct):
    kind: LookupKind
    value: 64


class LookupResult(data.Struct):
    hit: 1
    port: 5


class ConfigUpdate(data.Struct):
    strobe: 1
    function: 6
    register: 10
    value: 32


class SlotInfo(data.Struct):
    """Side information of a TLP that comes from a slot."""

    port: 5
    info: TlpInfo


class SlotMeta(data.Struct):
    """Side information of a TLP that goes to a slot."""

    port: 5
    cls: TlpClass


class ConfigRequest(data.Struct):
    """Access to one dword of a configuration space."""

    function: 6  #: 0 is the upstream port, n the downstream port n - 1
    register: 10
    write: 1
    enables: 4   #: byte enables of a write
    data: 32     #: byte 0 least significant


class ConfigEvent(data.Struct):
    """Status bits that hardware sets."""

    function: 6
    register: 10
    set: 32


class PortState(data.Struct):
    """What the configuration space of a port says about traffic. All 0 after reset."""

    io: 1               #: I/O Space Enable
    memory: 1           #: Memory Space Enable
    master: 1           #: Bus Master Enable
    power: 2            #: power state; 0 is D0
    forward_errors: 1   #: SERR# Enable of the bridge
    isa: 1              #: ISA Enable
    reset: 1            #: Secondary Bus Reset
    secondary: 8
    subordinate: 8
    block_atomics: 1    #: AtomicOp Egress Blocking
    block_prefixes: 1   #: End-End TLP Prefix Blocking
    msi: 1              #: MSI Enable
    ari: 1              #: ARI Forwarding Enable (downstream only, as all that follow)
    disable: 1          #: Link Disable
    validate: 1         #: ACS Source Validation
    translation: 1      #: ACS Translation Blocking
    redirect: 1         #: ACS P2P Request Redirect
    redirect_cpl: 1     #: ACS P2P Completion Redirect
    upstream: 1         #: ACS Upstream Forwarding
    direct: 1           #: ACS Direct Translated P2P


class UpstreamState(data.Struct):
    """Windows of the upstream port; bases and limits without the bits that are always 0 or 1."""

    memory_base: 12
    memory_limit: 12
    prefetch_base: 44
    prefetch_limit: 44
    io_base: 20
    io_limit: 20
