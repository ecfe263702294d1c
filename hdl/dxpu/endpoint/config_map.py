"""The configuration space of the soft GPU, as plain data.

Three things are made from this description, as from :mod:`dxpu.switch.config.port_map` for the
ports of the switch: the registers of :class:`~dxpu.endpoint.config_space.EndpointConfig`, the
golden configuration space of the tests, and the register page.

Ref: PCIe Base 5.0, 7.5.1.2 (type 0 header), 7.5.2, 7.5.3, 7.7.1, 7.7.2, 7.7.3, 7.9.3
"""

from dataclasses import dataclass

from dxpu.switch.config.fields import Field, FunctionMap, Register
from dxpu.switch.config.placeholder_map import memory_bar
from dxpu.switch.config.port_map import link_status_2, secondary_express

from .register_map import (
    CLASS_CODE, DEVICE_ID, MSIX_PENDING, MSIX_TABLE, NAME_SIZE, REGISTER_BAR_SIZE, VECTORS,
    VENDOR_ID,
)

__all__ = ["MAX_PAYLOAD", "GpuIdentity", "gpu_map"]

#: Code of the largest Max_Payload_Size: 512 bytes.
MAX_PAYLOAD = 2

# Offsets of the capabilities, in the order of their pointers, and of the extended capabilities.
PM, MSI, MSIX, EXPRESS = 0x40, 0x48, 0x58, 0x64
DSN, SECONDARY = 0x100, 0x10C


@dataclass(frozen=True)
class GpuIdentity:
    """Identifiers by which software recognises the GPU.

    Parameters
    ----------
    serial : int
        64-bit serial number, in the Device Serial Number capability and in registers.
    name : str
        Up to 64 ASCII characters, read through BAR 0.
    vendor, device, revision, subsystem_vendor : int
        Identifiers of the type 0 header. The default values are registered to nobody: a maker of
        hardware sets its own. The Subsystem ID is the low half of the serial number.
    link_speed, link_width : int
        Speed code and number of lanes in the link registers; there is no physical link.
    """

    serial: int = 1
    name: str = "DXPU soft GPU"
    vendor: int = VENDOR_ID
    device: int = DEVICE_ID
    revision: int = 1
    subsystem_vendor: int = VENDOR_ID
    link_speed: int = 3
    link_width: int = 16

    def __post_init__(self):
        if not isinstance(self.serial, int) or self.serial not in range(1 << 64):
            raise ValueError(f"serial must be a number of 64 bits, not {self.serial!r}")
        if not self.name.isascii() or len(self.name) > NAME_SIZE:
            raise ValueError(f"name must be up to {NAME_SIZE} ASCII characters, not {self.name!r}")


def _header(ident: GpuIdentity, vram_bytes: int):
    F = Field
    return (
        Register(0x00, 16, "Vendor ID", (F("Vendor ID", 0, 16, reset=ident.vendor),)),
        Register(0x02, 16, "Device ID", (F("Device ID", 0, 16, reset=ident.device),)),
        Register(0x04, 16, "Command", (
            F("Memory Space Enable", 1, 1, "RW"),
            F("Bus Master Enable", 2, 1, "RW", doc="copies and interrupts"),
            F("Parity Error Response", 6, 1, "RW"),
            F("SERR# Enable", 8, 1, "RW", doc="no effect: sends no error messages"),
            F("Interrupt Disable", 10, 1, doc="has no INTx"))),
        Register(0x06, 16, "Status", (
            F("Capabilities List", 4, reset=1),
            F("Master Data Parity Error", 8, 1, "RW1C", doc="a poisoned completion came, with "
              "Parity Error Response"),
            F("Received Target Abort", 12, 1, "RW1C", doc="a completion with CA came"),
            F("Received Master Abort", 13, 1, "RW1C", doc="a completion with UR came"),
            F("Detected Parity Error", 15, 1, "RW1C", doc="a poisoned TLP came"))),
        Register(0x08, 8, "Revision ID", (F("Revision ID", 0, 8, reset=ident.revision),)),
        Register(0x09, 8, "Programming Interface", (
            F("Programming Interface", 0, 8, reset=CLASS_CODE & 0xFF),)),
        Register(0x0A, 16, "Class Code", (
            F("Sub-Class Code", 0, 8, reset=CLASS_CODE >> 8 & 0xFF, doc="3D controller"),
            F("Base Class Code", 8, 8, reset=CLASS_CODE >> 16, doc="display controller"))),
        Register(0x0C, 8, "Cache Line Size", (F("Cache Line Size", 0, 8, "RW", doc="no effect"),)),
        Register(0x0E, 8, "Header Type", (
            F("Header Layout", 0, 7), F("Multi-Function Device", 7))),
        *memory_bar(0x10, 0, REGISTER_BAR_SIZE, wide=False),
        *memory_bar(0x18, 2, vram_bytes, wide=True),
        Register(0x2C, 16, "Subsystem Vendor ID", (
            F("Subsystem Vendor ID", 0, 16, reset=ident.subsystem_vendor),)),
        Register(0x2E, 16, "Subsystem ID", (
            F("Subsystem ID", 0, 16, reset=ident.serial & 0xFFFF),)),
        Register(0x34, 8, "Capabilities Pointer", (F("Capabilities Pointer", 0, 8, reset=PM),)),
        Register(0x3C, 8, "Interrupt Line", (F("Interrupt Line", 0, 8, "RW", doc="no effect"),)),
        Register(0x3D, 8, "Interrupt Pin", (F("Interrupt Pin", 0, 8, doc="no INTx"),)),
    )


def _power_management():
    F = Field
    return (
        Register(PM, 16, "PM Capability Header", (
            F("Capability ID", 0, 8, reset=0x01), F("Next Capability Pointer", 8, 8, reset=MSI))),
        Register(PM + 2, 16, "Power Management Capabilities", (
            F("Version", 0, 3, reset=3), F("D1 Support", 9), F("D2 Support", 10),
            F("PME Support", 11, 5))),
        Register(PM + 4, 16, "Power Management Control/Status", (
            F("Power State", 0, 2, "RW",
              doc="D0 (0) or D3hot (3); a write of D1 or D2 changes nothing. Outside D0 the BARs "
                  "do not answer and no request leaves"),
            F("No Soft Reset", 3, reset=1))),
    )


def _interrupts():
    F = Field
    return (
        Register(MSI, 16, "MSI Capability Header", (
            F("Capability ID", 0, 8, reset=0x05), F("Next Capability Pointer", 8, 8, reset=MSIX))),
        Register(MSI + 2, 16, "MSI Message Control", (
            F("MSI Enable", 0, 1, "RW"),
            F("Multiple Message Capable", 1, 3, reset=VECTORS.bit_length() - 1),
            F("Multiple Message Enable", 4, 3, "RW"),
            F("64-bit Address Capable", 7, reset=1))),
        Register(MSI + 4, 32, "MSI Message Address", (F("Address [31:2]", 2, 30, "RW"),)),
        Register(MSI + 8, 32, "MSI Message Upper Address", (F("Address [63:32]", 0, 32, "RW"),)),
        Register(MSI + 12, 16, "MSI Message Data", (F("Data", 0, 16, "RW"),)),
        Register(MSIX, 16, "MSI-X Capability Header", (
            F("Capability ID", 0, 8, reset=0x11),
            F("Next Capability Pointer", 8, 8, reset=EXPRESS))),
        Register(MSIX + 2, 16, "MSI-X Message Control", (
            F("Table Size", 0, 11, reset=VECTORS - 1),
            F("Function Mask", 14, 1, "RW"),
            F("MSI-X Enable", 15, 1, "RW"))),
        Register(MSIX + 4, 32, "MSI-X Table", (
            F("Table BIR", 0, 3), F("Table Offset", 3, 29, reset=MSIX_TABLE >> 3))),
        Register(MSIX + 8, 32, "MSI-X PBA", (
            F("PBA BIR", 0, 3), F("PBA Offset", 3, 29, reset=MSIX_PENDING >> 3))),
    )


def _express(ident: GpuIdentity):
    F = Field
    return (
        Register(EXPRESS, 16, "PCI Express Capability Header", (
            F("Capability ID", 0, 8, reset=0x10), F("Next Capability Pointer", 8, 8))),
        Register(EXPRESS + 0x02, 16, "PCI Express Capabilities", (
            F("Capability Version", 0, 4, reset=2),
            F("Device/Port Type", 4, 4, doc="endpoint"))),
        Register(EXPRESS + 0x04, 32, "Device Capabilities", (
            F("Max_Payload_Size Supported", 0, 3, reset=MAX_PAYLOAD,
              doc=f"{128 << MAX_PAYLOAD} bytes"),
            F("Extended Tag Field Supported", 5, doc="tags have 5 bits"),
            F("Role-Based Error Reporting", 15, reset=1),
            F("Function Level Reset Capability", 28, reset=1))),
        Register(EXPRESS + 0x08, 16, "Device Control", (
            F("Correctable Error Reporting Enable", 0, 1, "RW", doc="no effect: sends no messages"),
            F("Non-Fatal Error Reporting Enable", 1, 1, "RW", doc="no effect"),
            F("Fatal Error Reporting Enable", 2, 1, "RW", doc="no effect"),
            F("Unsupported Request Reporting Enable", 3, 1, "RW", doc="no effect"),
            F("Enable Relaxed Ordering", 4, doc="never sets it"),
            F("Max_Payload_Size", 5, 3, "RW", doc="kept by a Function Level Reset; values above "
              "the supported maximum count as the maximum"),
            F("Enable No Snoop", 11, doc="never sets it"),
            F("Max_Read_Request_Size", 12, 3, "RW", 2),
            F("Initiate Function Level Reset", 15, 1, "W1"))),
        Register(EXPRESS + 0x0A, 16, "Device Status", (
            F("Correctable Error Detected", 0, 1, "RW1C", doc="advisory: a request was answered "
              "with UR, a completion was unexpected"),
            F("Non-Fatal Error Detected", 1, 1, "RW1C", doc="a posted request was not supported, a "
              "TLP was poisoned, a read timed out"),
            F("Fatal Error Detected", 2, 1, "RW1C", doc="a TLP was malformed"),
            F("Unsupported Request Detected", 3, 1, "RW1C"),
            F("Transactions Pending", 5, 1, "LIVE", doc="reads are open"))),
        Register(EXPRESS + 0x0C, 32, "Link Capabilities", (
            F("Max Link Speed", 0, 4, reset=ident.link_speed),
            F("Maximum Link Width", 4, 6, reset=ident.link_width),
            F("ASPM Support", 10, 2, doc="none"),
            F("ASPM Optionality Compliance", 22, reset=1))),
        Register(EXPRESS + 0x10, 16, "Link Control", (
            F("ASPM Control", 0, 2, "RW", doc="no effect"),
            F("Read Completion Boundary", 3, 1, "RW", doc="no effect"),
            F("Common Clock Configuration", 6, 1, "RW", doc="no effect"),
            F("Extended Synch", 7, 1, "RW", doc="no effect"))),
        Register(EXPRESS + 0x12, 16, "Link Status", (
            F("Current Link Speed", 0, 4, reset=ident.link_speed),
            F("Negotiated Link Width", 4, 6, reset=ident.link_width),
            F("Slot Clock Configuration", 12, reset=1))),
        Register(EXPRESS + 0x24, 32, "Device Capabilities 2", (
            F("Completion Timeout Ranges Supported", 0, 4, doc="the time cannot be set"),
            F("Completion Timeout Disable Supported", 4, reset=1),
            F("10-Bit Tag Completer Supported", 16, reset=1),
            F("Extended Fmt Field Supported", 20, reset=1),
            F("End-End TLP Prefix Supported", 21))),
        Register(EXPRESS + 0x28, 16, "Device Control 2", (
            F("Completion Timeout Disable", 4, 1, "RW"),)),
        Register(EXPRESS + 0x2C, 32, "Link Capabilities 2", (
            F("Supported Link Speeds Vector", 1, 7, reset=(1 << ident.link_speed) - 1),)),
        Register(EXPRESS + 0x30, 16, "Link Control 2", (
            F("Target Link Speed", 0, 4, "RW", ident.link_speed, "no effect"),)),
        *(link_status_2(EXPRESS + 0x32, live=False) if ident.link_speed >= 3 else ()),
    )


def _serial(ident: GpuIdentity):
    F = Field
    return (
        Register(DSN, 32, "Device Serial Number Extended Capability Header", (
            F("Capability ID", 0, 16, reset=0x0003), F("Capability Version", 16, 4, reset=1),
            F("Next Capability Offset", 20, 12, reset=SECONDARY if ident.link_speed >= 3 else 0))),
        Register(DSN + 4, 32, "Serial Number (Lower)", (
            F("Serial Number [31:0]", 0, 32, reset=ident.serial & 0xFFFF_FFFF),)),
        Register(DSN + 8, 32, "Serial Number (Upper)", (
            F("Serial Number [63:32]", 0, 32, reset=ident.serial >> 32),)),
    )


def gpu_map(identity: GpuIdentity | None = None, *, vram_bytes: int = 16384) -> FunctionMap:
    """The configuration space of a soft GPU with ``vram_bytes`` bytes of video memory."""
    ident = identity or GpuIdentity()
    return FunctionMap("gpu", (
        *_header(ident, vram_bytes), *_power_management(), *_interrupts(), *_express(ident),
        *_serial(ident),
        *(secondary_express(SECONDARY, ident.link_width, down=False)
          if ident.link_speed >= 3 else ())))
