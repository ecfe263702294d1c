"""The configuration space of the placeholder endpoint, as plain data.

Reset images, write masks and register page are made from this description, as from
:mod:`~.port_map` for the ports. The registers are kept in the configuration space of the port
above, in dwords :data:`HELD` and up, which software cannot see there.

Ref: PCIe Base 5.0, 7.5.1.2 (type 0 header), 7.5.2, 7.5.3
"""

from .fields import FUNCTION_DWORDS, Field, FunctionMap, Register
from .identity import Identity, PlaceholderOptions

__all__ = ["CLASS_CODE", "HELD", "HELD_DWORDS", "PLACEHOLDER", "hide", "memory_bar",
           "placeholder_map"]

PLACEHOLDER = "placeholder"

#: Dwords of a placeholder's configuration space with a memory behind them.
HELD_DWORDS = 32
#: First of these dwords in the configuration space of the port.
HELD = FUNCTION_DWORDS - HELD_DWORDS

#: Base class, sub-class, programming interface: "device does not fit in any defined class". No
#: driver binds by this class, in contrast to 12h, processing accelerator, which some graphics
#: drivers claim for all devices of a vendor.
CLASS_CODE = 0xFF0000

PM, EXPRESS = 0x40, 0x48


def memory_bar(offset: int, number: int, size: int, *, wide: bool):
    """A memory BAR; the address bits below its size are 0 (7.5.1.2.1)."""
    F = Field
    low = size.bit_length() - 1
    first = (F("Memory Space Indicator", 0, 1, doc="memory"),
             F("Type", 1, 2, reset=2 if wide else 0, doc="64-bit" if wide else "32-bit"),
             F("Prefetchable", 3, 1, reset=int(wide)))
    if low < 32:
        first += (F(f"Address [31:{low}]", low, 32 - low, "RW"),)
    registers = (Register(offset, 32, f"Base Address Register {number}", first),)
    if wide:
        low = max(low - 32, 0)
        registers += (Register(offset + 4, 32, f"Base Address Register {number + 1}", (
            F(f"Address [63:{32 + low}]", low, 32 - low, "RW"),)),)
    return registers


def _header(ident: Identity, options: PlaceholderOptions):
    F = Field
    return (
        Register(0x00, 16, "Vendor ID", (F("Vendor ID", 0, 16, reset=ident.vendor),)),
        Register(0x02, 16, "Device ID", (F("Device ID", 0, 16, reset=ident.placeholder_device),)),
        Register(0x04, 16, "Command", (
            F("Memory Space Enable", 1, 1, "RW", doc="no effect: no access is supported"),
            F("Bus Master Enable", 2, 1, doc="makes no requests"),
            F("Parity Error Response", 6, 1, "RW", doc="no effect"),
            F("SERR# Enable", 8, 1, "RW", doc="no effect: sends no messages"),
            F("Interrupt Disable", 10, 1, doc="has no interrupts"))),
        Register(0x06, 16, "Status", (F("Capabilities List", 4, reset=1),)),
        Register(0x08, 8, "Revision ID", (F("Revision ID", 0, 8, reset=ident.revision),)),
        Register(0x09, 8, "Programming Interface", (
            F("Programming Interface", 0, 8, reset=CLASS_CODE & 0xFF),)),
        Register(0x0A, 16, "Class Code", (
            F("Sub-Class Code", 0, 8, reset=CLASS_CODE >> 8 & 0xFF),
            F("Base Class Code", 8, 8, reset=CLASS_CODE >> 16, doc="in no defined class"))),
        Register(0x0C, 8, "Cache Line Size", (F("Cache Line Size", 0, 8, "RW", doc="no effect"),)),
        Register(0x0E, 8, "Header Type", (
            F("Header Layout", 0, 7), F("Multi-Function Device", 7))),
        *memory_bar(0x10, 0, options.memory, wide=False),
        *memory_bar(0x18, 2, options.prefetchable, wide=True),
        Register(0x2C, 16, "Subsystem Vendor ID", (
            F("Subsystem Vendor ID", 0, 16, reset=ident.subsystem_vendor),)),
        Register(0x2E, 16, "Subsystem ID", (F("Subsystem ID", 0, 16, reset=ident.subsystem),)),
        Register(0x34, 8, "Capabilities Pointer", (F("Capabilities Pointer", 0, 8, reset=PM),)),
        Register(0x3D, 8, "Interrupt Pin", (F("Interrupt Pin", 0, 8, doc="no INTx"),)),
    )


def _power_management():
    F = Field
    return (
        Register(PM, 16, "PM Capability Header", (
            F("Capability ID", 0, 8, reset=0x01),
            F("Next Capability Pointer", 8, 8, reset=EXPRESS))),
        Register(PM + 2, 16, "Power Management Capabilities", (
            F("Version", 0, 3, reset=3), F("D1 Support", 9), F("D2 Support", 10),
            F("PME Support", 11, 5))),
        Register(PM + 4, 16, "Power Management Control/Status", (
            F("Power State", 0, 2, "RW",
              doc="D0 (0) or D3hot (3); a write of D1 or D2 changes nothing"),
            F("No Soft Reset", 3, reset=1))),
    )


def _express(ident: Identity):
    F = Field
    return (
        Register(EXPRESS, 16, "PCI Express Capability Header", (
            F("Capability ID", 0, 8, reset=0x10), F("Next Capability Pointer", 8, 8))),
        Register(EXPRESS + 0x02, 16, "PCI Express Capabilities", (
            F("Capability Version", 0, 4, reset=2),
            F("Device/Port Type", 4, 4, doc="endpoint"))),
        Register(EXPRESS + 0x04, 32, "Device Capabilities", (
            F("Max_Payload_Size Supported", 0, 3, reset=2, doc="512 bytes"),
            F("Extended Tag Field Supported", 5, reset=1),
            F("Role-Based Error Reporting", 15, reset=1))),
        Register(EXPRESS + 0x08, 16, "Device Control", (
            F("Correctable Error Reporting Enable", 0, 1, "RW", doc="no effect: sends no messages"),
            F("Non-Fatal Error Reporting Enable", 1, 1, "RW", doc="no effect"),
            F("Fatal Error Reporting Enable", 2, 1, "RW", doc="no effect"),
            F("Unsupported Request Reporting Enable", 3, 1, "RW", doc="no effect"),
            F("Max_Payload_Size", 5, 3, "RW"),
            F("Extended Tag Field Enable", 8, 1, "RW", 1))),
        Register(EXPRESS + 0x0A, 16, "Device Status", (
            F("Correctable Error Detected", 0, 1, "RW1C", doc="advisory: a request was answered "
              "with UR, a completion was unexpected"),
            F("Non-Fatal Error Detected", 1, 1, "RW1C", doc="a posted request was dropped"),
            F("Unsupported Request Detected", 3, 1, "RW1C"))),
        Register(EXPRESS + 0x0C, 32, "Link Capabilities", (
            F("Max Link Speed", 0, 4, reset=ident.link_speed),
            F("Maximum Link Width", 4, 6, reset=ident.link_width),
            F("ASPM Support", 10, 2, doc="none"),
            F("ASPM Optionality Compliance", 22, reset=1))),
        Register(EXPRESS + 0x10, 16, "Link Control", (
            F("ASPM Control", 0, 2, "RW", doc="no effect"),
            F("Common Clock Configuration", 6, 1, "RW", doc="no effect"),
            F("Extended Synch", 7, 1, "RW", doc="no effect"))),
        Register(EXPRESS + 0x12, 16, "Link Status", (
            F("Current Link Speed", 0, 4, "LIVE", doc="that of the port"),
            F("Negotiated Link Width", 4, 6, reset=ident.link_width),
            F("Slot Clock Configuration", 12, reset=1))),
        Register(EXPRESS + 0x24, 32, "Device Capabilities 2", (
            F("10-Bit Tag Completer Supported", 16, reset=1),
            F("Extended Fmt Field Supported", 20, reset=1),
            F("End-End TLP Prefix Supported", 21, reset=1),
            F("Max End-End TLP Prefixes", 22, 2, doc="0 means 4"))),
        Register(EXPRESS + 0x2C, 32, "Link Capabilities 2", (
            F("Supported Link Speeds Vector", 1, 7, reset=(1 << ident.link_speed) - 1),)),
        Register(EXPRESS + 0x30, 16, "Link Control 2", (
            F("Target Link Speed", 0, 4, "RW", ident.link_speed, "no effect"),)),
    )


def placeholder_map(identity: Identity | None = None) -> FunctionMap:
    """The configuration space of a placeholder; without options, the default options apply."""
    ident = identity or Identity()
    options = ident.placeholder or PlaceholderOptions()
    return FunctionMap(PLACEHOLDER, (
        *_header(ident, options), *_power_management(), *_express(ident)))


def hide(port: list[int], placeholder: list[int]) -> list[int]:
    """An image of a downstream port, with the image of its placeholder inserted at :data:`HELD`."""
    if any(port[HELD:]) or any(placeholder[HELD_DWORDS:]):
        raise ValueError("the registers of port and placeholder must fit side by side")
    return port[:HELD] + placeholder[:HELD_DWORDS]
