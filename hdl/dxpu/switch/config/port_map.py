"""The configuration spaces of the switch's ports, as plain data: the single definition.

The tables hold offset, fields, access and reset of every register, but no behaviour. The block
memories of :class:`~dxpu.switch.config_space.ConfigSpace` and the register pages of the
documentation (:func:`render`) are made from these tables.

Ref: PCIe Base 5.0, 7.5 and 7.7 to 7.9; PCI-to-PCI Bridge 1.2, chapter 3.
"""

from .fields import AER, DPC, Field, FunctionMap, Register, render_map
from .identity import Identity, SlotOptions

__all__ = ["ACS_BITS", "DOWNSTREAM", "UPSTREAM", "function_map", "link_status_2", "render",
           "secondary_express"]

UPSTREAM, DOWNSTREAM = "upstream", "downstream"


# Offsets of the capabilities, in the order of their pointers, and of the extended capabilities.
PM, MSI, SSVID, EXPRESS = 0x40, 0x48, 0x58, 0x60
DSN, ACS, SECONDARY = 0x150, 0x160, 0x200


def _error_bits(access: str, kind: str, doc: str, resets: tuple[int, ...] = ()):
    """Fields of an AER uncorrectable register; ``resets`` are the bits that are 1 after reset."""
    bits = [(4, "Data Link Protocol Error"), (12, "Poisoned TLP Received"),
            (16, "Unexpected Completion"), (18, "Malformed TLP"), (20, "Unsupported Request Error"),
            (22, "Uncorrectable Internal Error"), (24, "AtomicOp Egress Blocked"),
            (25, "TLP Prefix Blocked")]
    if kind == DOWNSTREAM:
        bits += [(5, "Surprise Down Error"), (21, "ACS Violation")]
    return tuple(Field(name, bit, 1, access, int(bit in resets), doc) for bit, name in sorted(bits))


def _correctable_bits(access: str, doc: str, resets: tuple[int, ...] = ()):
    bits = [(0, "Receiver Error"), (6, "Bad TLP"), (7, "Bad DLLP"), (8, "REPLAY_NUM Rollover"),
            (12, "Replay Timer Timeout"), (13, "Advisory Non-Fatal Error"),
            (14, "Corrected Internal Error"), (15, "Header Log Overflow")]
    return tuple(Field(name, bit, 1, access, int(bit in resets), doc) for bit, name in bits)


def _header(kind: str, ident: Identity):
    F = Field
    device = ident.upstream_device if kind == UPSTREAM else ident.downstream_device

    def errors(system):
        return tuple(F(name, bit, 1, "RW1C") for bit, name in (
            (8, "Master Data Parity Error"), (11, "Signaled Target Abort"),
            (12, "Received Target Abort"), (13, "Received Master Abort"),
            (14, system), (15, "Detected Parity Error")))

    return (
        Register(0x00, 16, "Vendor ID", (F("Vendor ID", 0, 16, reset=ident.vendor),)),
        Register(0x02, 16, "Device ID", (F("Device ID", 0, 16, reset=device),)),
        Register(0x04, 16, "Command", (
            F("I/O Space Enable", 0, 1, "RW", doc="I/O requests from the primary side"),
            F("Memory Space Enable", 1, 1, "RW", doc="memory requests from the primary side"),
            F("Bus Master Enable", 2, 1, "RW",
              doc="memory and I/O requests from the secondary side; completions always pass"),
            F("Parity Error Response", 6, 1, "RW"),
            F("SERR# Enable", 8, 1, "RW"),
            F("Interrupt Disable", 10, 1, "RW", doc="no INTx"))),
        Register(0x06, 16, "Status", (
            *(() if kind == UPSTREAM else (F("Interrupt Status", 3, 1, "LIVE", doc="a hot-plug "
              "event waits for INTx, whatever Interrupt Disable is; 0 with MSI enabled"),)),
            F("Capabilities List", 4, reset=1), *errors("Signaled System Error"))),
        Register(0x08, 8, "Revision ID", (F("Revision ID", 0, 8, reset=ident.revision),)),
        Register(0x09, 8, "Programming Interface", (F("Programming Interface", 0, 8),)),
        Register(0x0A, 16, "Class Code", (
            F("Sub-Class Code", 0, 8, reset=0x04, doc="PCI-to-PCI bridge"),
            F("Base Class Code", 8, 8, reset=0x06, doc="bridge"))),
        Register(0x0C, 8, "Cache Line Size", (
            F("Cache Line Size", 0, 8, "RW", doc="no effect"),)),
        Register(0x0E, 8, "Header Type", (
            F("Header Layout", 0, 7, reset=1), F("Multi-Function Device", 7))),
        Register(0x18, 8, "Primary Bus Number", (
            F("Primary Bus Number", 0, 8, "RW", doc="kept for software; identifiers come from "
              "configuration writes"),)),
        Register(0x19, 8, "Secondary Bus Number", (F("Secondary Bus Number", 0, 8, "RW"),)),
        Register(0x1A, 8, "Subordinate Bus Number", (F("Subordinate Bus Number", 0, 8, "RW"),)),
        Register(0x1C, 8, "I/O Base", (
            F("I/O Addressing", 0, 4, reset=1, doc="32-bit"),
            F("I/O Base [15:12]", 4, 4, "RW"))),
        Register(0x1D, 8, "I/O Limit", (
            F("I/O Addressing", 0, 4, reset=1, doc="32-bit"),
            F("I/O Limit [15:12]", 4, 4, "RW"))),
        Register(0x1E, 16, "Secondary Status", errors("Received System Error")),
        Register(0x20, 16, "Memory Base", (F("Memory Base [31:20]", 4, 12, "RW"),)),
        Register(0x22, 16, "Memory Limit", (F("Memory Limit [31:20]", 4, 12, "RW"),)),
        Register(0x24, 16, "Prefetchable Memory Base", (
            F("Memory Addressing", 0, 4, reset=1, doc="64-bit"),
            F("Prefetchable Base [31:20]", 4, 12, "RW"))),
        Register(0x26, 16, "Prefetchable Memory Limit", (
            F("Memory Addressing", 0, 4, reset=1, doc="64-bit"),
            F("Prefetchable Limit [31:20]", 4, 12, "RW"))),
        Register(0x28, 32, "Prefetchable Base Upper 32 Bits", (
            F("Prefetchable Base [63:32]", 0, 32, "RW"),)),
        Register(0x2C, 32, "Prefetchable Limit Upper 32 Bits", (
            F("Prefetchable Limit [63:32]", 0, 32, "RW"),)),
        Register(0x30, 16, "I/O Base Upper 16 Bits", (F("I/O Base [31:16]", 0, 16, "RW"),)),
        Register(0x32, 16, "I/O Limit Upper 16 Bits", (F("I/O Limit [31:16]", 0, 16, "RW"),)),
        Register(0x34, 8, "Capabilities Pointer", (F("Capabilities Pointer", 0, 8, reset=PM),)),
        Register(0x3C, 8, "Interrupt Line", (F("Interrupt Line", 0, 8, "RW", doc="no effect"),)),
        Register(0x3D, 8, "Interrupt Pin", (
            F("Interrupt Pin", 0, 8, doc="no INTx") if kind == UPSTREAM else
            F("Interrupt Pin", 0, 8, reset=1, doc="INTA of a device with the port's number"),)),
        Register(0x3E, 16, "Bridge Control", (
            F("Parity Error Response Enable", 0, 1, "RW"),
            F("SERR# Enable", 1, 1, "RW", doc="forward error messages"),
            F("ISA Enable", 2, 1, "RW",
              doc="the last 768 bytes of each KiB of the first 64 KiB of I/O do not go down"),
            F("Secondary Bus Reset", 6, 1, "RW",
              doc="level; at the upstream port it also resets all downstream functions"))),
    )


def _power_management():
    F = Field
    return (
        Register(PM, 16, "PM Capability Header", (
            F("Capability ID", 0, 8, reset=0x01), F("Next Capability Pointer", 8, 8, reset=MSI))),
        Register(PM + 2, 16, "Power Management Capabilities", (
            F("Version", 0, 3, reset=3),
            F("D1 Support", 9), F("D2 Support", 10),
            F("PME Support", 11, 5, reset=0b11001, doc="forwards PME messages"))),
        Register(PM + 4, 16, "Power Management Control/Status", (
            F("Power State", 0, 2, "RW",
              doc="D0 (0) or D3hot (3); a write of D1 or D2 changes nothing. Outside D0 a bridge "
                  "passes no memory and I/O requests"),
            F("No Soft Reset", 3, reset=1),
            F("PME Enable", 8, 1, "RW"),
            F("PME Status", 15, 1, "RW1C", doc="of a downstream port: an enabled hot-plug event "
              "happened in D3hot, with PME Enable set"))),
    )


def _msi():
    F = Field
    return (
        Register(MSI, 16, "MSI Capability Header", (
            F("Capability ID", 0, 8, reset=0x05), F("Next Capability Pointer", 8, 8, reset=SSVID))),
        Register(MSI + 2, 16, "MSI Message Control", (
            F("MSI Enable", 0, 1, "RW"),
            F("Multiple Message Capable", 1, 3, doc="one vector"),
            F("Multiple Message Enable", 4, 3, "RW"),
            F("64-bit Address Capable", 7, reset=1))),
        Register(MSI + 4, 32, "MSI Message Address", (F("Address [31:2]", 2, 30, "RW"),)),
        Register(MSI + 8, 32, "MSI Message Upper Address", (F("Address [63:32]", 0, 32, "RW"),)),
        Register(MSI + 12, 16, "MSI Message Data", (F("Data", 0, 16, "RW"),)),
    )


def _subsystem(ident: Identity):
    F = Field
    return (
        Register(SSVID, 16, "Subsystem ID Capability Header", (
            F("Capability ID", 0, 8, reset=0x0D),
            F("Next Capability Pointer", 8, 8, reset=EXPRESS))),
        Register(SSVID + 4, 16, "Subsystem Vendor ID", (
            F("Subsystem Vendor ID", 0, 16, reset=ident.subsystem_vendor),)),
        Register(SSVID + 6, 16, "Subsystem ID", (
            F("Subsystem ID", 0, 16, reset=ident.subsystem),)),
    )


def _slot(options: SlotOptions):
    F = Field

    def if_(option, *fields):
        return fields if option else ()

    return (
        Register(EXPRESS + 0x14, 32, "Slot Capabilities", (
            F("Attention Button Present", 0, reset=1),
            F("Power Controller Present", 1, reset=int(options.power_controller)),
            F("MRL Sensor Present", 2),
            F("Attention Indicator Present", 3, reset=int(options.attention_indicator)),
            F("Power Indicator Present", 4, reset=1),
            F("Hot-Plug Surprise", 5, reset=int(options.surprise)),
            F("Hot-Plug Capable", 6, reset=1),
            F("Slot Power Limit Value", 7, 8, reset=0xF2, doc="300 W"),
            F("Slot Power Limit Scale", 15, 2),
            F("No Command Completed Support", 18, reset=int(not options.command_completed)),
            F("Physical Slot Number", 19, 13, reset="slot"))),
        Register(EXPRESS + 0x18, 16, "Slot Control", (
            F("Attention Button Pressed Enable", 0, 1, "RW"),
            F("Presence Detect Changed Enable", 3, 1, "RW"),
            *if_(options.command_completed, F("Command Completed Interrupt Enable", 4, 1, "RW")),
            F("Hot-Plug Interrupt Enable", 5, 1, "RW"),
            *if_(options.attention_indicator, F("Attention Indicator Control", 6, 2, "RW", 3,
                                                "1 on, 2 blink, 3 off")),
            F("Power Indicator Control", 8, 2, "RW", 3, "1 on, 2 blink, 3 off"),
            *if_(options.power_controller, F("Power Controller Control", 10, 1, "RW",
                                             doc="0 on, 1 off: no link")),
            F("Data Link Layer State Changed Enable", 12, 1, "RW"),
            *if_(options.dpc, F("Auto Slot Power Limit Disable", 13, 1, "RW",
                                doc="no Set_Slot_Power_Limit when the link comes up")))),
        Register(EXPRESS + 0x1A, 16, "Slot Status", (
            F("Attention Button Pressed", 0, 1, "RW1C"),
            F("Presence Detect Changed", 3, 1, "RW1C"),
            *if_(options.command_completed, F("Command Completed", 4, 1, "RW1C")),
            F("Presence Detect State", 6, 1, "LIVE", doc="a GPU is bound to this slot"),
            F("Data Link Layer State Changed", 8, 1, "RW1C"))),
    )


def _express(kind: str, ident: Identity):
    F = Field
    down = kind == DOWNSTREAM

    def only_down(*fields):
        return fields if down else ()

    link = (F("Current Link Speed", 0, 4, "LIVE" if down else "RO",
              0 if down else ident.link_speed, "0 while the link is not active" if down else ""),
            F("Negotiated Link Width", 4, 6, "LIVE" if down else "RO",
              0 if down else ident.link_width, "0 while the link is not active" if down else ""))
    power = ((F("Captured Slot Power Limit Value", 18, 8, "LIVE", doc="from the last "
                "Set_Slot_Power_Limit message"),
              F("Captured Slot Power Limit Scale", 26, 2, "LIVE")) if not down else ())
    registers = (
        Register(EXPRESS, 16, "PCI Express Capability Header", (
            F("Capability ID", 0, 8, reset=0x10), F("Next Capability Pointer", 8, 8))),
        Register(EXPRESS + 0x02, 16, "PCI Express Capabilities", (
            F("Capability Version", 0, 4, reset=2),
            F("Device/Port Type", 4, 4, reset=6 if down else 5),
            F("Slot Implemented", 8, reset=int(down)))),
        Register(EXPRESS + 0x04, 32, "Device Capabilities", (
            F("Max_Payload_Size Supported", 0, 3, reset=2, doc="512 bytes"),
            F("Extended Tag Field Supported", 5, reset=1),
            F("Role-Based Error Reporting", 15, reset=1), *power)),
        Register(EXPRESS + 0x08, 16, "Device Control", (
            F("Correctable Error Reporting Enable", 0, 1, "RW"),
            F("Non-Fatal Error Reporting Enable", 1, 1, "RW"),
            F("Fatal Error Reporting Enable", 2, 1, "RW"),
            F("Unsupported Request Reporting Enable", 3, 1, "RW"),
            F("Max_Payload_Size", 5, 3, "RW"),
            F("Extended Tag Field Enable", 8, 1, "RW", 1))),
        Register(EXPRESS + 0x0A, 16, "Device Status", (
            F("Correctable Error Detected", 0, 1, "RW1C"),
            F("Non-Fatal Error Detected", 1, 1, "RW1C"),
            F("Fatal Error Detected", 2, 1, "RW1C"),
            F("Unsupported Request Detected", 3, 1, "RW1C"))),
        Register(EXPRESS + 0x0C, 32, "Link Capabilities", (
            F("Max Link Speed", 0, 4, reset=ident.link_speed),
            F("Maximum Link Width", 4, 6, reset=ident.link_width),
            F("ASPM Support", 10, 2, doc="none"),
            F("Surprise Down Error Reporting Capable", 19, reset=int(down and ident.slot.dpc)),
            F("Data Link Layer Link Active Reporting Capable", 20, reset=int(down)),
            F("Link Bandwidth Notification Capability", 21, reset=int(down)),
            F("ASPM Optionality Compliance", 22, reset=1),
            F("Port Number", 24, 8, reset="slot" if down else 0))),
        Register(EXPRESS + 0x10, 16, "Link Control", (
            F("ASPM Control", 0, 2, "RW", doc="no effect"),
            *only_down(F("Link Disable", 4, 1, "RW",
                         doc="level: the link is not active while it is set"),
                       F("Retrain Link", 5, 1, "W1", doc="trains an active link to Target Link "
                         "Speed, at once; sets Link Bandwidth Management Status")),
            F("Common Clock Configuration", 6, 1, "RW", doc="no effect"),
            F("Extended Synch", 7, 1, "RW", doc="no effect"),
            *only_down(F("Link Bandwidth Management Interrupt Enable", 10, 1, "RW"),
                       F("Link Autonomous Bandwidth Interrupt Enable", 11, 1, "RW")))),
        Register(EXPRESS + 0x12, 16, "Link Status", (
            *link,
            F("Link Training", 11),
            F("Slot Clock Configuration", 12, reset=1),
            *only_down(F("Data Link Layer Link Active", 13, 1, "LIVE",
                         doc="present, not disabled and not in reset"),
                       F("Link Bandwidth Management Status", 14, 1, "RW1C",
                         doc="the link was retrained, and stayed active"),
                       F("Link Autonomous Bandwidth Status", 15, 1, "RW1C")))),
    )
    if down:
        registers += _slot(ident.slot)
    return (
        *registers,
        Register(EXPRESS + 0x24, 32, "Device Capabilities 2", (
            F("ARI Forwarding Supported", 5, reset=int(down)),
            F("AtomicOp Routing Supported", 6, reset=1),
            F("LTR Mechanism Supported", 11, reset=1),
            F("10-Bit Tag Completer Supported", 16, reset=1),
            F("Extended Fmt Field Supported", 20, reset=1),
            F("End-End TLP Prefix Supported", 21, reset=1),
            F("Max End-End TLP Prefixes", 22, 2, doc="0 means 4"))),
        Register(EXPRESS + 0x28, 16, "Device Control 2", (
            *only_down(F("ARI Forwarding Enable", 5, 1, "RW",
                         doc="Type 1 requests with a device number other than 0 go down too")),
            F("AtomicOp Egress Blocking", 7, 1, "RW"),
            F("LTR Mechanism Enable", 10, 1, "RW", doc="messages of the slot are heard" if down else
              "what all slots tolerate is told upstream"),
            F("End-End TLP Prefix Blocking", 15, 1, "RW"))),
        Register(EXPRESS + 0x2C, 32, "Link Capabilities 2", (
            F("Supported Link Speeds Vector", 1, 7, reset=(1 << ident.link_speed) - 1),)),
        Register(EXPRESS + 0x30, 16, "Link Control 2", (
            F("Target Link Speed", 0, 4, "RW", ident.link_speed,
              "in effect when the link becomes active and when it is retrained" if down else
              "no effect"),)),
        *(link_status_2(EXPRESS + 0x32, live=down) if ident.link_speed >= 3 else ()),
    )


def link_status_2(offset: int, *, live: bool):
    """Link Status 2 (7.5.3.20): equalization is complete; ``live`` fields follow the hardware."""
    return (Register(offset, 16, "Link Status 2", tuple(
        Field(f"Equalization 8.0 GT/s {name}", bit, 1, "LIVE" if live else "RO",
              0 if live else 1, "the link has been at 8.0 GT/s since it became active" if live
              else "")
        for bit, name in enumerate(("Complete", "Phase 1 Successful", "Phase 2 Successful",
                                    "Phase 3 Successful"), 1))),)


def _extended_header(offset: int, name: str, ident: int, version: int, following: int):
    return Register(offset, 32, f"{name} Extended Capability Header", (
        Field("Capability ID", 0, 16, reset=ident), Field("Capability Version", 16, 4,
                                                          reset=version),
        Field("Next Capability Offset", 20, 12, reset=following)))


def _errors(kind: str):
    F = Field
    return (
        _extended_header(AER, "AER", 0x0001, 2, DSN),
        Register(AER + 0x04, 32, "Uncorrectable Error Status", _error_bits("RW1C", kind, "")),
        Register(AER + 0x08, 32, "Uncorrectable Error Mask", _error_bits("RW", kind, "", (22,))),
        Register(AER + 0x0C, 32, "Uncorrectable Error Severity",
                 _error_bits("RW", kind, "", (4, 5, 18, 22))),
        Register(AER + 0x10, 32, "Correctable Error Status", _correctable_bits("RW1C", "")),
        Register(AER + 0x14, 32, "Correctable Error Mask",
                 _correctable_bits("RW", "", (13, 14, 15))),
        Register(AER + 0x18, 32, "Advanced Error Capabilities and Control", (
            F("First Error Pointer", 0, 5, doc="0 until the log is whole, and when it is free"),
            F("ECRC Generation Capable", 5), F("ECRC Check Capable", 7),
            F("Multiple Header Recording Capable", 9),
            F("TLP Prefix Log Present", 11, doc="with First Error Pointer: the TLP had prefixes"))),
        *(Register(AER + 0x1C + 4 * n, 32, f"Header Log {n}", (
            F(f"Header bytes {4 * n} to {4 * n + 3}", 0, 32, doc="first byte most significant"),))
          for n in range(4)),
        *(Register(AER + 0x38 + 4 * n, 32, f"TLP Prefix Log {n}", (
            F(f"Prefix {n}", 0, 32, doc="first byte most significant; 0 if there is none"),))
          for n in range(4)),
    )


def _after(ident: Identity, *, dpc: bool = False) -> int:
    """Offset of the first capability behind those of all functions; 0 for none."""
    return DPC if dpc and ident.slot.dpc else SECONDARY if ident.link_speed >= 3 else 0


def _serial(kind: str, ident: Identity):
    F = Field
    return (
        _extended_header(DSN, "Device Serial Number", 0x0003, 1,
                         ACS if kind == DOWNSTREAM else _after(ident)),
        Register(DSN + 4, 32, "Serial Number (Lower)", (
            F("Serial Number [31:0]", 0, 32, "LIVE", ident.serial & 0xFFFF_FFFF,
              "set by the manager or the factory record; at first what it was built with"),)),
        Register(DSN + 8, 32, "Serial Number (Upper)", (
            F("Serial Number [63:32]", 0, 32, reset=ident.serial >> 32),)),
    )


ACS_BITS = ("ACS Source Validation", "ACS Translation Blocking", "ACS P2P Request Redirect",
            "ACS P2P Completion Redirect", "ACS Upstream Forwarding", "ACS P2P Egress Control",
            "ACS Direct Translated P2P")


def _access_control(ident: Identity):
    return (
        _extended_header(ACS, "ACS", 0x000D, 1, _after(ident, dpc=True)),
        Register(ACS + 4, 16, "ACS Capability", tuple(
            Field(name, bit, 1, "RO", int(bit != 5)) for bit, name in enumerate(ACS_BITS))),
        Register(ACS + 6, 16, "ACS Control", tuple(
            Field(f"{name} Enable", bit, 1, "RW") for bit, name in enumerate(ACS_BITS)
            if bit != 5)),
    )


def _containment(ident: Identity):
    F = Field
    return (
        _extended_header(DPC, "DPC", 0x001D, 1, _after(ident)),
        Register(DPC + 0x04, 16, "DPC Capability", (
            F("DPC Interrupt Message Number", 0, 5),
            F("RP Extensions for DPC", 5), F("Poisoned TLP Egress Blocking Supported", 6),
            F("DPC Software Triggering Supported", 7, reset=1),
            F("RP PIO Log Size", 8, 4), F("DL_Active ERR_COR Signaling Supported", 12))),
        Register(DPC + 0x06, 16, "DPC Control", (
            F("DPC Trigger Enable", 0, 2, "RW", doc="1 fatal errors, 2 non-fatal ones too; 0 and 3 "
              "none"),
            F("DPC Completion Control", 2, 1, "RW", doc="status of completions made meanwhile: 0 "
              "Completer Abort, 1 Unsupported Request"),
            F("DPC Interrupt Enable", 3, 1, "RW"),
            F("DPC ERR_COR Enable", 4, 1, "RW"),
            F("DPC Software Trigger", 6, 1, "W1", doc="triggers, if Trigger Enable says 1 or 2"))),
        Register(DPC + 0x08, 16, "DPC Status", (
            F("DPC Trigger Status", 0, 1, "RW1C", doc="the link is not active while it is set"),
            F("DPC Trigger Reason", 1, 2, doc="0 an error of the port, 1 ERR_NONFATAL received, 2 "
              "ERR_FATAL received, 3 see the extension"),
            F("DPC Interrupt Status", 3, 1, "RW1C"),
            F("DPC RP Busy", 4),
            F("DPC Trigger Reason Extension", 5, 2, doc="1 software"),
            F("RP PIO First Error Pointer", 8, 5))),
        Register(DPC + 0x0A, 16, "DPC Error Source ID", (
            F("DPC Error Source ID", 0, 16, doc="requester of the message; 0 with other "
              "reasons"),)),
    )


def secondary_express(offset: int, lanes: int, *, down: bool):
    """Secondary PCI Express (7.7.3): registers required for links of 8.0 GT/s, without effect here.

    Presets and hints have the value for "none received" (all ones). Presets of the far transmitter
    are reserved in an upstream port, which is never the downstream end of a link.
    """
    F = Field
    preset = {"Downstream Port 8.0 GT/s Transmitter Preset": (0, 4),
              "Downstream Port 8.0 GT/s Receiver Preset Hint": (4, 3)} if down else {}
    preset |= {"Upstream Port 8.0 GT/s Transmitter Preset": (8, 4),
               "Upstream Port 8.0 GT/s Receiver Preset Hint": (12, 3)}
    return (
        _extended_header(offset, "Secondary PCI Express", 0x0019, 1, 0),
        *((Register(offset + 4, 32, "Link Control 3", (
            F("Perform Equalization", 0, 1, "RW", doc="no effect"),
            F("Link Equalization Request Interrupt Enable", 1, 1, "RW",
              doc="no effect: there are no such requests"))),) if down else ()),
        Register(offset + 8, 32, "Lane Error Status", (
            F("Lane Error Status", 0, lanes, "RW1C"),)),
        *(Register(offset + 12 + 2 * n, 16, f"Lane {n} Equalization Control", tuple(
            F(name, lsb, width, reset=(1 << width) - 1) for name, (lsb, width) in preset.items()))
          for n in range(lanes)),
    )


def function_map(kind: str, identity: Identity | None = None) -> FunctionMap:
    """The configuration space of the upstream port or of a downstream port."""
    if kind not in (UPSTREAM, DOWNSTREAM):
        raise ValueError(f"kind must be 'upstream' or 'downstream', not {kind!r}")
    ident = identity or Identity()
    return FunctionMap(kind, (
        *_header(kind, ident), *_power_management(), *_msi(), *_subsystem(ident),
        *_express(kind, ident), *_errors(kind), *_serial(kind, ident),
        *(_access_control(ident) if kind == DOWNSTREAM else ()),
        *(_containment(ident) if kind == DOWNSTREAM and ident.slot.dpc else ()),
        *(secondary_express(SECONDARY, ident.link_width, down=kind == DOWNSTREAM)
          if ident.link_speed >= 3 else ())))


def render(kind: str, identity: Identity | None = None) -> str:
    """The register page of a port, in Markdown."""
    return render_map(function_map(kind, identity), f"{kind} port", "switch/config/port_map.py")


