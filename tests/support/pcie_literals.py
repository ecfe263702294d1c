"""Fields of configuration space as drawn in the specification, typed in from its text.

Nothing comes from the design. A line is byte offset in the capability, bits, access and value after
reset, name. The value ``-`` stands for identifiers and numbers set by build options. Access ``RO``
also stands for HwInit and for fields that follow the hardware. Bits not listed are reserved, or
hardwired to 0 here, and must read 0 after any write.

Ref: PCIe Base 6.0, 7.5.1 to 7.5.3, 7.7.1 (MSI), 7.7.3 (Secondary PCI Express), 7.7.7 (ACS), 7.8.4
(AER), 7.9.3 (serial number), 7.9.14 (DPC); PCI-to-PCI Bridge 1.2, 3.2.5.13 (subsystem IDs)
"""

from dataclasses import dataclass

__all__ = ["LAYOUTS", "Literal"]


@dataclass(frozen=True)
class Literal:
    """A field: byte offset of its 32-bit word, lowest bit there, width, access, reset, name."""

    offset: int
    lsb: int
    width: int
    access: str
    reset: int | None
    name: str


def parse(text: str, base: int = 0) -> list[Literal]:
    """The fields of a capability at ``base``."""
    found = []
    for line in filter(None, text.splitlines()):
        offset, bits, access, reset, name = line.split(None, 4)
        high, _, low = bits.partition(":")
        lsb, place = int(low or high), base + int(offset, 16)
        found.append(Literal(place & ~3, lsb + 8 * (place & 3), int(high) - lsb + 1, access,
                             None if reset == "-" else int(reset, 16), name))
    return found


#: 7.5.1.1: fields common to type 0 and type 1 headers.
COMMON = """
00 15:0 RO - Vendor ID
02 15:0 RO - Device ID
08 7:0 RO - Revision ID
09 7:0 RO 00 Programming Interface
0c 7:0 RW 00 Cache Line Size
0e 6:0 RO - Header Layout
0e 7 RO 0 Multi-Function Device
34 7:0 RO 40 Capabilities Pointer
"""
#: 7.5.1.3: type 1.
BRIDGE = COMMON.replace("RO - Header", "RO 01 Header") + """
04 0 RW 0 I/O Space Enable
04 1 RW 0 Memory Space Enable
04 2 RW 0 Bus Master Enable
04 6 RW 0 Parity Error Response
04 8 RW 0 SERR# Enable
04 10 RW 0 Interrupt Disable
06 4 RO 1 Capabilities List
06 8 RW1C 0 Master Data Parity Error
06 11 RW1C 0 Signaled Target Abort
06 12 RW1C 0 Received Target Abort
06 13 RW1C 0 Received Master Abort
06 14 RW1C 0 Signaled System Error
06 15 RW1C 0 Detected Parity Error
0a 7:0 RO 04 Sub-Class Code
0a 15:8 RO 06 Base Class Code
18 7:0 RW 00 Primary Bus Number
19 7:0 RW 00 Secondary Bus Number
1a 7:0 RW 00 Subordinate Bus Number
1c 3:0 RO 1 I/O Addressing
1c 7:4 RW 0 I/O Base [15:12]
1d 3:0 RO 1 I/O Addressing
1d 7:4 RW 0 I/O Limit [15:12]
1e 8 RW1C 0 Master Data Parity Error
1e 11 RW1C 0 Signaled Target Abort
1e 12 RW1C 0 Received Target Abort
1e 13 RW1C 0 Received Master Abort
1e 14 RW1C 0 Received System Error
1e 15 RW1C 0 Detected Parity Error
20 15:4 RW 000 Memory Base [31:20]
22 15:4 RW 000 Memory Limit [31:20]
24 3:0 RO 1 Memory Addressing
24 15:4 RW 000 Prefetchable Base [31:20]
26 3:0 RO 1 Memory Addressing
26 15:4 RW 000 Prefetchable Limit [31:20]
28 31:0 RW 0 Prefetchable Base [63:32]
2c 31:0 RW 0 Prefetchable Limit [63:32]
30 15:0 RW 0 I/O Base [31:16]
32 15:0 RW 0 I/O Limit [31:16]
3c 7:0 RW 00 Interrupt Line
3e 0 RW 0 Parity Error Response Enable
3e 1 RW 0 SERR# Enable
3e 2 RW 0 ISA Enable
3e 6 RW 0 Secondary Bus Reset
"""
#: Fields of a port with interrupts of its own.
INTERRUPTS = """
06 3 RO 0 Interrupt Status
3d 7:0 RO 01 Interrupt Pin
"""
NO_INTERRUPTS = "3d 7:0 RO 00 Interrupt Pin"

#: 7.5.1.2: type 0, with a 32-bit BAR of 32 MiB and a prefetchable 64-bit BAR of 64 GiB.
ENDPOINT = COMMON.replace("RO - Header", "RO 00 Header") + """
04 1 RW 0 Memory Space Enable
04 2 RO 0 Bus Master Enable
04 6 RW 0 Parity Error Response
04 8 RW 0 SERR# Enable
04 10 RO 0 Interrupt Disable
06 4 RO 1 Capabilities List
0a 7:0 RO 00 Sub-Class Code
0a 15:8 RO ff Base Class Code
10 0 RO 0 Memory Space Indicator
10 2:1 RO 0 Type
10 3 RO 0 Prefetchable
10 31:25 RW 0 Address [31:25]
18 0 RO 0 Memory Space Indicator
18 2:1 RO 2 Type
18 3 RO 1 Prefetchable
1c 31:4 RW 0 Address [63:36]
2c 15:0 RO - Subsystem Vendor ID
2e 15:0 RO - Subsystem ID
3d 7:0 RO 00 Interrupt Pin
"""

#: 7.5.2: ports forward PME from D0, D3hot and D3cold.
POWER = """
00 7:0 RO 01 Capability ID
00 15:8 RO - Next Capability Pointer
02 2:0 RO 3 Version
02 9 RO 0 D1 Support
02 10 RO 0 D2 Support
02 15:11 RO - PME Support
04 1:0 RW 0 Power State
04 3 RO 1 No Soft Reset
"""
PME = """
04 8 RW 0 PME Enable
04 15 RW1C 0 PME Status
"""
#: 7.7.1: 64-bit addresses, one vector.
MSI = """
00 7:0 RO 05 Capability ID
00 15:8 RO 58 Next Capability Pointer
02 0 RW 0 MSI Enable
02 3:1 RO 0 Multiple Message Capable
02 6:4 RW 0 Multiple Message Enable
02 7 RO 1 64-bit Address Capable
04 31:2 RW 0 Address [31:2]
08 31:0 RW 0 Address [63:32]
0c 15:0 RW 0 Data
"""
SUBSYSTEM = """
00 7:0 RO 0d Capability ID
00 15:8 RO 60 Next Capability Pointer
04 15:0 RO - Subsystem Vendor ID
06 15:0 RO - Subsystem ID
"""

#: 7.5.3: fields common to all kinds. 512 bytes; 8.0 GT/s, 16 lanes.
EXPRESS = """
00 7:0 RO 10 Capability ID
00 15:8 RO 00 Next Capability Pointer
02 3:0 RO 2 Capability Version
02 7:4 RO - Device/Port Type
04 2:0 RO 2 Max_Payload_Size Supported
04 5 RO 1 Extended Tag Field Supported
04 15 RO 1 Role-Based Error Reporting
08 0 RW 0 Correctable Error Reporting Enable
08 1 RW 0 Non-Fatal Error Reporting Enable
08 2 RW 0 Fatal Error Reporting Enable
08 3 RW 0 Unsupported Request Reporting Enable
08 7:5 RW 0 Max_Payload_Size
08 8 RW 1 Extended Tag Field Enable
0a 0 RW1C 0 Correctable Error Detected
0a 1 RW1C 0 Non-Fatal Error Detected
0a 3 RW1C 0 Unsupported Request Detected
0c 3:0 RO 3 Max Link Speed
0c 9:4 RO 10 Maximum Link Width
0c 11:10 RO 0 ASPM Support
0c 22 RO 1 ASPM Optionality Compliance
10 1:0 RW 0 ASPM Control
10 6 RW 0 Common Clock Configuration
10 7 RW 0 Extended Synch
12 3:0 RO - Current Link Speed
12 9:4 RO - Negotiated Link Width
12 12 RO 1 Slot Clock Configuration
24 16 RO 1 10-Bit Tag Completer Supported
24 20 RO 1 Extended Fmt Field Supported
24 21 RO 1 End-End TLP Prefix Supported
24 23:22 RO 0 Max End-End TLP Prefixes
2c 7:1 RO 07 Supported Link Speeds Vector
30 3:0 RW 3 Target Link Speed
"""
#: 7.5.3.20: additional fields for 8.0 GT/s.
PORT = EXPRESS + """
32 1 RO - Equalization 8.0 GT/s Complete
32 2 RO - Equalization 8.0 GT/s Phase 1 Successful
32 3 RO - Equalization 8.0 GT/s Phase 2 Successful
32 4 RO - Equalization 8.0 GT/s Phase 3 Successful
02 8 RO - Slot Implemented
0a 2 RW1C 0 Fatal Error Detected
0c 19 RO - Surprise Down Error Reporting Capable
0c 20 RO - Data Link Layer Link Active Reporting Capable
0c 21 RO - Link Bandwidth Notification Capability
0c 31:24 RO - Port Number
12 11 RO 0 Link Training
24 5 RO - ARI Forwarding Supported
24 6 RO 1 AtomicOp Routing Supported
24 11 RO 1 LTR Mechanism Supported
28 7 RW 0 AtomicOp Egress Blocking
28 10 RW 0 LTR Mechanism Enable
28 15 RW 0 End-End TLP Prefix Blocking
"""


#: Names of the four equalization bits.
EQUALIZATION = [f"Equalization 8.0 GT/s {name}" for name in (
    "Complete", "Phase 1 Successful", "Phase 2 Successful", "Phase 3 Successful")]


def given(text: str, values: dict[str, str]) -> str:
    """``text`` with ``values``, by name, in place of ``-``."""
    for name, value in values.items():
        assert text.count(f" RO - {name}\n") == 1, name
        text = text.replace(f" RO - {name}\n", f" RO {value} {name}\n")
    return text


EXPRESS_UP = given(PORT, {
    "Device/Port Type": "5", "Slot Implemented": "0", "Surprise Down Error Reporting Capable": "0",
    "Data Link Layer Link Active Reporting Capable": "0", "Port Number": "0",
    "Link Bandwidth Notification Capability": "0", "ARI Forwarding Supported": "0",
    "Current Link Speed": "3", "Negotiated Link Width": "10",
    **dict.fromkeys(EQUALIZATION, "1")}) + """
04 25:18 RO 0 Captured Slot Power Limit Value
04 27:26 RO 0 Captured Slot Power Limit Scale
"""
#: Values of port 0, whose slot is number 1, without a card.
EXPRESS_DOWN = given(PORT, {
    "Device/Port Type": "6", "Slot Implemented": "1", "Port Number": "1",
    "Data Link Layer Link Active Reporting Capable": "1",
    "Link Bandwidth Notification Capability": "1", "ARI Forwarding Supported": "1",
    "Current Link Speed": "0", "Negotiated Link Width": "0",
    **dict.fromkeys(EQUALIZATION, "0")}) + """
10 4 RW 0 Link Disable
10 5 W1 0 Retrain Link
10 10 RW 0 Link Bandwidth Management Interrupt Enable
10 11 RW 0 Link Autonomous Bandwidth Interrupt Enable
12 13 RO 0 Data Link Layer Link Active
12 14 RW1C 0 Link Bandwidth Management Status
12 15 RW1C 0 Link Autonomous Bandwidth Status
14 0 RO 1 Attention Button Present
14 1 RO - Power Controller Present
14 2 RO 0 MRL Sensor Present
14 3 RO - Attention Indicator Present
14 4 RO 1 Power Indicator Present
14 5 RO - Hot-Plug Surprise
14 6 RO 1 Hot-Plug Capable
14 14:7 RO f2 Slot Power Limit Value
14 16:15 RO 0 Slot Power Limit Scale
14 18 RO - No Command Completed Support
14 31:19 RO 1 Physical Slot Number
18 0 RW 0 Attention Button Pressed Enable
18 3 RW 0 Presence Detect Changed Enable
18 5 RW 0 Hot-Plug Interrupt Enable
18 9:8 RW 3 Power Indicator Control
18 12 RW 0 Data Link Layer State Changed Enable
1a 0 RW1C 0 Attention Button Pressed
1a 3 RW1C 0 Presence Detect Changed
1a 6 RO 0 Presence Detect State
1a 8 RW1C 0 Data Link Layer State Changed
28 5 RW 0 ARI Forwarding Enable
"""
#: Optional fields of slots.
SLOT_OPTIONS = """
18 4 RW 0 Command Completed Interrupt Enable
18 7:6 RW 3 Attention Indicator Control
18 10 RW 0 Power Controller Control
18 13 RW 0 Auto Slot Power Limit Disable
1a 4 RW1C 0 Command Completed
"""
#: The endpoint shows the speed of the port, if the port has a link.
EXPRESS_ENDPOINT = given(EXPRESS, {"Device/Port Type": "0", "Negotiated Link Width": "10"})


def _errors(offset: str, access: str, resets: dict[int, str], names: dict[int, str]) -> str:
    return "".join(f"\n{offset} {bit} {access} {resets.get(bit, '0')} {name}"
                   for bit, name in names.items())


#: 7.8.4.2: bits of the three uncorrectable registers, and of the two correctable ones (7.8.4.5).
UNCORRECTABLE = {
    4: "Data Link Protocol Error", 12: "Poisoned TLP Received", 16: "Unexpected Completion",
    18: "Malformed TLP", 20: "Unsupported Request Error", 22: "Uncorrectable Internal Error",
    24: "AtomicOp Egress Blocked", 25: "TLP Prefix Blocked"}
BELOW = UNCORRECTABLE | {5: "Surprise Down Error", 21: "ACS Violation"}
CORRECTABLE = {
    0: "Receiver Error", 6: "Bad TLP", 7: "Bad DLLP", 8: "REPLAY_NUM Rollover",
    12: "Replay Timer Timeout", 13: "Advisory Non-Fatal Error", 14: "Corrected Internal Error",
    15: "Header Log Overflow"}


def _aer(uncorrectable: dict[int, str]) -> str:
    fatal = dict.fromkeys((4, 5, 18, 22), "1")
    return ("""
00 15:0 RO 0001 Capability ID
00 19:16 RO 2 Capability Version
00 31:20 RO 150 Next Capability Offset
18 4:0 RO 0 First Error Pointer
18 5 RO 0 ECRC Generation Capable
18 7 RO 0 ECRC Check Capable
18 9 RO 0 Multiple Header Recording Capable
18 11 RO 0 TLP Prefix Log Present
1c 31:0 RO 0 Header bytes 0 to 3
20 31:0 RO 0 Header bytes 4 to 7
24 31:0 RO 0 Header bytes 8 to 11
28 31:0 RO 0 Header bytes 12 to 15
38 31:0 RO 0 Prefix 0
3c 31:0 RO 0 Prefix 1
40 31:0 RO 0 Prefix 2
44 31:0 RO 0 Prefix 3"""
            + _errors("04", "RW1C", {}, uncorrectable)
            + _errors("08", "RW", {22: "1"}, uncorrectable)
            + _errors("0c", "RW", fatal, uncorrectable)
            + _errors("10", "RW1C", {}, CORRECTABLE)
            + _errors("14", "RW", dict.fromkeys((13, 14, 15), "1"), CORRECTABLE))


SERIAL = """
00 15:0 RO 0003 Capability ID
00 19:16 RO 1 Capability Version
00 31:20 RO - Next Capability Offset
04 31:0 RO - Serial Number [31:0]
08 31:0 RO - Serial Number [63:32]
"""
#: Bit 5 of both registers, P2P Egress Control, is missing.
ACS = """
00 15:0 RO 000d Capability ID
00 19:16 RO 1 Capability Version
00 31:20 RO - Next Capability Offset
04 0 RO 1 ACS Source Validation
04 1 RO 1 ACS Translation Blocking
04 2 RO 1 ACS P2P Request Redirect
04 3 RO 1 ACS P2P Completion Redirect
04 4 RO 1 ACS Upstream Forwarding
04 5 RO 0 ACS P2P Egress Control
04 6 RO 1 ACS Direct Translated P2P
06 0 RW 0 ACS Source Validation Enable
06 1 RW 0 ACS Translation Blocking Enable
06 2 RW 0 ACS P2P Request Redirect Enable
06 3 RW 0 ACS P2P Completion Redirect Enable
06 4 RW 0 ACS Upstream Forwarding Enable
06 6 RW 0 ACS Direct Translated P2P Enable
"""
#: 7.9.14: software trigger, no other optional feature.
DPC = """
00 15:0 RO 001d Capability ID
00 19:16 RO 1 Capability Version
00 31:20 RO - Next Capability Offset
04 4:0 RO 0 DPC Interrupt Message Number
04 5 RO 0 RP Extensions for DPC
04 6 RO 0 Poisoned TLP Egress Blocking Supported
04 7 RO 1 DPC Software Triggering Supported
04 11:8 RO 0 RP PIO Log Size
04 12 RO 0 DL_Active ERR_COR Signaling Supported
06 1:0 RW 0 DPC Trigger Enable
06 2 RW 0 DPC Completion Control
06 3 RW 0 DPC Interrupt Enable
06 4 RW 0 DPC ERR_COR Enable
06 6 W1 0 DPC Software Trigger
08 0 RW1C 0 DPC Trigger Status
08 2:1 RO 0 DPC Trigger Reason
08 3 RW1C 0 DPC Interrupt Status
08 4 RO 0 DPC RP Busy
08 6:5 RO 0 DPC Trigger Reason Extension
08 12:8 RO 0 RP PIO First Error Pointer
0a 15:0 RO 0 DPC Error Source ID
"""


#: 7.7.3: an upstream port has at most the fields about its own receiver.
SECONDARY = """
00 15:0 RO 0019 Capability ID
00 19:16 RO 1 Capability Version
00 31:20 RO 000 Next Capability Offset
08 15:0 RW1C 0 Lane Error Status
""" + "".join(f"""
{12 + 2 * lane:x} 11:8 RO f Upstream Port 8.0 GT/s Transmitter Preset
{12 + 2 * lane:x} 14:12 RO 7 Upstream Port 8.0 GT/s Receiver Preset Hint
""" for lane in range(16))
SECONDARY_DOWN = SECONDARY + """
04 0 RW 0 Perform Equalization
04 1 RW 0 Link Equalization Request Interrupt Enable
""" + "".join(f"""
{12 + 2 * lane:x} 3:0 RO f Downstream Port 8.0 GT/s Transmitter Preset
{12 + 2 * lane:x} 6:4 RO 7 Downstream Port 8.0 GT/s Receiver Preset Hint
""" for lane in range(16))


def _port(kind: str, *, more: str = "", options: dict[str, str] | None = None,
          after_acs: str = "200") -> list[Literal]:
    """All fields of a port; ``more`` fields of its slot, ``options`` set by its build."""
    up = kind == "upstream"
    power = given(POWER, {"Next Capability Pointer": "48", "PME Support": "19"}) + PME
    express = EXPRESS_UP if up else given(EXPRESS_DOWN + more, options or {})
    found = parse(BRIDGE + (NO_INTERRUPTS if up else INTERRUPTS))
    for base, text in ((0x40, power), (0x48, MSI), (0x58, SUBSYSTEM), (0x60, express),
                       (0x100, _aer(UNCORRECTABLE if up else BELOW))):
        found += parse(text, base)
    found += parse(given(SERIAL, {"Next Capability Offset": "200" if up else "160"}), 0x150)
    found += parse(SECONDARY if up else SECONDARY_DOWN, 0x200)
    if not up:
        found += parse(given(ACS, {"Next Capability Offset": after_acs}), 0x160)
    return found


def _slot(surprise: int, others: int) -> dict[str, str]:
    return {"Hot-Plug Surprise": f"{surprise}", "Power Controller Present": f"{others}",
            "Attention Indicator Present": f"{others}",
            "No Command Completed Support": f"{1 - others}",
            "Surprise Down Error Reporting Capable": f"{1 - surprise}"}


#: Layouts by kind of function, as for :func:`function_map`, or by build options.
LAYOUTS = {
    "upstream": _port("upstream"),
    "downstream": _port("downstream", options=_slot(1, 0)),
    "all options": _port("downstream", more=SLOT_OPTIONS, options=_slot(0, 1), after_acs="170")
    + parse(given(DPC, {"Next Capability Offset": "200"}), 0x170),
    "placeholder": parse(ENDPOINT)
    + parse(given(POWER, {"Next Capability Pointer": "48", "PME Support": "0"}), 0x40)
    + parse(EXPRESS_ENDPOINT, 0x48),
}
