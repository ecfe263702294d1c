"""Description of a board: part, clocks, Ethernet ports, and roles."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields

from amaranth.lib import io
from amaranth.vendor import LatticePlatform


from .clocks import Clock
from .io_delay import ECP5_INPUT
from .pll import ECP5, Family
from .rings import ECP5_CELLS, Cells

__all__ = ["FOUR_SLOTS", "ONE_SLOT", "Board", "Rgmii", "Shape", "request_rgmii", "with_resources"]


@dataclass(frozen=True)
class Shape:
    """Size of a proxy that fits a board in a role.

    ``width`` is in bits; ``slots`` are downstream ports of a host, GPU slots of a box. ``gpus`` is
    the number of soft GPUs of a box, which are in its first slots; ``None``: one in each slot.
    """

    width: int = 64
    slots: int = 8
    peers: int = 16
    streams: int = 4
    gpus: int | None = None

    def numbers(self, role: str) -> dict[str, int]:
        """Numbers of a proxy in this role, by name; ``gpus`` only for a box."""
        found = asdict(self)
        gpus = found.pop("gpus")
        return found | ({} if role == "host" else {"gpus": self.slots if gpus is None else gpus})


#: Shapes that meet their clocks in an ECP5: with a core of 62.5 MHz, and of 83.3 MHz
#: (:data:`~dxpu_boards.clocks.CORE_83`).
ONE_SLOT = Shape(slots=1, peers=1, streams=1)
FOUR_SLOTS = Shape(slots=4, peers=4, streams=1)


@dataclass(frozen=True)
class Board:
    """A board: an Amaranth platform with the additional facts that DXPU needs.

    Parameters
    ----------
    name : str
        Name in commands.
    title : str
        Name in documents.
    platform : type
        Subclass of :class:`amaranth.vendor.LatticePlatform` or ``XilinxPlatform``, with pins
        missing upstream; its default clock is the input of the PLL.
    clocks : tuple of Clock
        Domains made by :class:`~dxpu_boards.clocks.Clocks`; ``sync``, the first one, is the core,
        ``tx`` and ``tx90`` (a quarter period later) are for RGMII.
    paths : tuple of int
        Number of the resource ``eth_rgmii`` of each Ethernet path.
    sfp : tuple of int
        Number of the resource ``sfp`` of each path, on boards whose paths are SFP cages
        (:mod:`.sfp`).
    roles : mapping of str to Shape
        Default shape for each of the roles ``host``, ``box``.
    core : mapping of str to Clock
        Clock ``sync`` of the roles in which it is not the first of ``clocks``.
    pcie : str
        Kind of PCIe connection, or empty.
    pcie_clock : Clock, optional
        Domain of a PCIe data link layer above a host; for boards with a resource ``perst``. The PLL
        makes this clock as long as no SERDES does.
    loader : tuple of str
        Options of openFPGALoader for the board or its cable; empty if the cable is the user's own.
    boot_loader : bool
        The flash begins with a boot loader, which a bitstream from address 0 would overwrite.
    record : int, optional
        Byte address in flash of the factory record (:mod:`.factory`): the beginning of 64 KiB
        without bitstream or boot loader, as the whole block is erased. ``None``: no record is read.
    notes : tuple of str
        Missing, unconfirmed or unfitting features; a line each.
    rx_buffer : function
        Input buffers of RXD and RX_CTL for :class:`dxpu.ethernet.RgmiiDelays`: delayed by as much
        as the tree of the receive clock, whose edges the PHY centres in the data.
    rx_reference : str, optional
        Domain of 200 MHz for :class:`~.io_delay.Series7DelayControl`, if ``rx_buffer`` needs one.
    pll : Family
    rings : Cells
        Cells of the noise source for keys.
    """

    name: str
    title: str
    platform: type
    clocks: tuple[Clock, ...]
    paths: tuple[int, ...]
    roles: Mapping[str, Shape]
    sfp: tuple[int, ...] = ()
    core: Mapping[str, Clock] = field(default_factory=dict)
    pcie: str = ""
    pcie_clock: Clock | None = None
    loader: tuple[str, ...] = ()
    boot_loader: bool = False
    record: int | None = None
    notes: tuple[str, ...] = ()
    rx_buffer: Callable = ECP5_INPUT
    rx_reference: str | None = None
    pll: Family = ECP5
    rings: Cells = ECP5_CELLS

    @property
    def part(self) -> str:
        """Name of the part in the vendor's spelling."""
        part = self.platform
        if self.is_open:
            return f"{part.device}-{part.speed}{part.package}"
        return f"{part.device}{part.package}-{part.speed}"

    @property
    def path_count(self) -> int:
        """Number of Ethernet paths of any kind."""
        return len(self.paths) + len(self.sfp)

    @property
    def medium(self) -> str:
        """Kind of the paths: ``SFP`` or ``RGMII``."""
        return "SFP" if self.sfp else "RGMII"

    def clocks_of(self, role: str) -> tuple[Clock, ...]:
        """Clocks of a proxy in this role; the first one is that of the core."""
        pcie = [self.pcie_clock] if role == "host" and self.pcie_clock else []
        return (self.core.get(role, self.clocks[0]), *self.clocks[1:], *pcie)

    def core_mhz(self, role: str) -> float:
        """Clock of the core in this role, in MHz."""
        return self.clocks_of(role)[0].mhz

    @property
    def has_console(self) -> bool:
        """Whether the board has a UART, through which registers can be written."""
        return any(resource.name == "uart" for resource in self.platform.resources)

    @property
    def is_open(self) -> bool:
        """Whether open tools, available as packages, make the bitstream."""
        return issubclass(self.platform, LatticePlatform)


@dataclass(frozen=True)
class Rgmii:
    """Ports of a PHY (:mod:`amaranth.lib.io`), independent of the names in the platform.

    ``rst``, ``mdc`` and ``mdio`` are ``None`` if the PHY lacks them, or shares those of path 0.
    """

    tx_clk: io.PortLike
    tx_ctl: io.PortLike
    tx_data: io.PortLike
    rx_clk: io.PortLike
    rx_ctl: io.PortLike
    rx_data: io.PortLike
    rst: io.PortLike | None = None
    mdc: io.PortLike | None = None
    mdio: io.PortLike | None = None

#: Other names of a PHY's pins in some platforms.
ALIASES = {"tx_ctl": "tx_ctrl", "rx_ctl": "rx_ctrl"}
#: Receive clock of RGMII at 1 Gb/s, in Hz.
RECEIVE_CLOCK = 125e6


def request_rgmii(platform, board: Board, path: int) -> Rgmii:
    """The pins of an Ethernet path, with a constraint for its receive clock.

    Raises
    ------
    IndexError
        If the board has no such path.
    """
    pins = platform.request("eth_rgmii", board.paths[path], dir="-")
    names = [field.name for field in fields(Rgmii)]
    rgmii = Rgmii(*(getattr(pins, name, None) or getattr(pins, ALIASES.get(name, name), None)
                    for name in names))
    platform.add_clock_constraint(rgmii.rx_clk.io, RECEIVE_CLOCK)
    return rgmii


def with_resources(resources, *changed):
    """Resources of a platform, with some replaced (by name and number) and others added."""
    new = {(resource.name, resource.number): resource for resource in changed}
    return [*(r for r in resources if (r.name, r.number) not in new), *changed]
