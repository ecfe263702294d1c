"""The configuration space of the endpoint: registers made from their description.

Ref: PCIe Base 5.0, 2.2.6.2 (captured bus and device numbers), 6.6 (resets), 7.5
"""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from .config_map import MAX_PAYLOAD, gpu_map
from .types import ConfigState, Errors

__all__ = ["EndpointConfig"]

#: Status bits and the errors that set them.
CAUSES = {
    ("Status", "Received Target Abort"): ("target_abort",),
    ("Status", "Received Master Abort"): ("master_abort",),
    ("Status", "Detected Parity Error"): ("poisoned",),
    ("Device Status", "Correctable Error Detected"): ("refused_np", "unexpected"),
    ("Device Status", "Non-Fatal Error Detected"): ("refused_p", "poisoned", "timeout"),
    ("Device Status", "Fatal Error Detected"): ("malformed",),
    ("Device Status", "Unsupported Request Detected"): ("refused_np", "refused_p"),
}


class EndpointConfig(wiring.Component):
    """Configuration space of a function with the registers of
    :func:`~dxpu.endpoint.config_map.gpu_map`.

    A dword is read combinationally; a write has taken effect in the next cycle. An error sets its
    bits even if software clears them in the same cycle. A reset of this component is a Function
    Level Reset; ``cold`` resets the registers that survive a Function Level Reset.

    Parameters
    ----------
    identity : :class:`~.config_map.GpuIdentity`
    vram_bytes : int
        Size of BAR 2.

    Members
    -------
    register : 10
        Number of the dword that is read or written.
    value : 32
        Content of dword ``register``.
    write, enables, data : 1, 4, 32
        Strobe: write the enabled bytes of ``data`` to dword ``register``.
    target_id : 16
        Bus, device and function number that a configuration write was addressed to; captured with
        ``write``.
    errors : :class:`~.types.Errors`
    pending : 1
        Reads are open.
    cold : 1
        Resets everything.
    state : :class:`~.types.ConfigState`
    function_reset : 1
        Pulse: the write of the cycle before asked for a Function Level Reset.
    """

    def __init__(self, identity, *, vram_bytes):
        super().__init__({
            "register": In(10), "value": Out(32), "write": In(1), "enables": In(4),
            "data": In(32), "target_id": In(16), "errors": In(Errors), "pending": In(1),
            "cold": In(1), "state": Out(ConfigState), "function_reset": Out(1),
        })
        self._map = gpu_map(identity, vram_bytes=vram_bytes)
        self._vram_bytes = vram_bytes

    def elaborate(self, platform):
        m = Module()
        fields = {(r.name, f.name): self._field(m, r, f)
                  for r in self._map.registers for f in r.fields}
        words = {}
        for r in self._map.registers:
            for f in r.fields:
                place = f.lsb + 8 * (r.offset % 4)
                words.setdefault(r.offset // 4, []).append(fields[r.name, f.name] << place)
        with m.Switch(self.register):
            for dword, parts in words.items():
                with m.Case(dword):
                    value = parts[0]
                    for part in parts[1:]:
                        value = value | part
                    m.d.comb += self.value.eq(value)
        self._report(m, fields)
        return m

    def _field(self, m, register, field):
        """Value of a field, with the logic that changes the field."""
        if field.access == "RO":
            return C(field.reset, field.width)
        if (register.name, field.name) == ("Device Status", "Transactions Pending"):
            return self.pending
        name = f"{register.name}_{field.name}".lower().replace(" ", "_")
        place = field.lsb + 8 * (register.offset % 4)
        here = self.write & (self.register == register.offset // 4)
        # The field's bits in each byte of the dword.
        pieces = [(n, max(place, 8 * n), min(place + field.width, 8 * n + 8)) for n in range(4)]
        pieces = [piece for piece in pieces if piece[1] < piece[2]]
        if field.access == "W1":
            m.d.sync += self.function_reset.eq(here & self.data[place] & self.enables[place // 8])
            return C(0, 1)
        keeps = field.name == "Max_Payload_Size"
        value = Signal(field.width, name=name, init=field.reset, reset_less=keeps)
        if field.access == "RW1C":
            caused = Cat(self.errors[cause] for cause in CAUSES.get(
                (register.name, field.name), ())).any()
            cleared = here & self.data[place] & self.enables[place // 8]
            m.d.sync += value.eq(value & ~cleared | caused)
            return value
        if field.name == "Power State":
            here = here & (self.data[0] == self.data[1])
        for n, begin, end in pieces:
            with m.If(here & self.enables[n]):
                m.d.sync += value[begin - place:end - place].eq(self.data[begin:end])
        if keeps:
            with m.If(self.cold):
                m.d.sync += value.eq(field.reset)
        return value

    def _report(self, m, fields):
        """Connect the fields that other hardware reads."""
        state = self.state
        on = fields["Power Management Control/Status", "Power State"] == 0
        payload = fields["Device Control", "Max_Payload_Size"]
        parity = fields["Status", "Master Data Parity Error"]
        with m.If(self.errors.poisoned_read & fields["Command", "Parity Error Response"]):
            m.d.sync += parity.eq(1)
        low = self._vram_bytes.bit_length() - 1
        captured = Signal(13, reset_less=True)
        with m.If(self.cold):
            m.d.sync += captured.eq(0)
        with m.Elif(self.write):
            m.d.sync += captured.eq(self.target_id[3:])
        vectors = fields["MSI Message Control", "Multiple Message Enable"]
        m.d.comb += [
            state.memory.eq(fields["Command", "Memory Space Enable"] & on),
            state.master.eq(fields["Command", "Bus Master Enable"] & on),
            state.bar0[16:].eq(fields["Base Address Register 0", "Address [31:16]"]),
            state.bar2[low:32].eq(fields["Base Address Register 2", f"Address [31:{low}]"]),
            state.bar2[32:].eq(fields["Base Address Register 3", "Address [63:32]"]),
            state.max_payload.eq(Mux(payload > MAX_PAYLOAD, MAX_PAYLOAD, payload)),
            # The reserved codes 6 and 7 count as 5.
            state.read_mask.eq(Cat(C(127, 7), *(
                fields["Device Control", "Max_Read_Request_Size"] > n for n in range(5)))),
            state.timeout_off.eq(fields["Device Control 2", "Completion Timeout Disable"]),
            state.msi.eq(fields["MSI Message Control", "MSI Enable"]),
            state.msi_vectors.eq(Cat(vectors > 0, vectors > 1, vectors > 2)),
            state.msi_address.eq(Cat(C(0, 2), fields["MSI Message Address", "Address [31:2]"],
                                     fields["MSI Message Upper Address", "Address [63:32]"])),
            state.msi_data.eq(fields["MSI Message Data", "Data"]),
            state.msix.eq(fields["MSI-X Message Control", "MSI-X Enable"]),
            state.msix_masked.eq(fields["MSI-X Message Control", "Function Mask"]),
            state.requester_id.eq(Cat(C(0, 3), captured)),
        ]
