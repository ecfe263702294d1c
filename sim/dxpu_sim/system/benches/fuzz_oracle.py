"""Expected fate of any TLP that enters a system of proxies, and the expected counts."""

from collections import Counter

from dxpu.switch.tracking.types import DropCause
from dxpu.tlp.types import Malformed, TlpClass
from dxpu_model.switch import UP
from dxpu_model.tlp import Tlp, classify, malformed
from dxpu_model.tracker import Tracker
from dxpu_sim.switch.golden import golden_switch
from dxpu_sim.system.traffic import lane, made_by_switch

__all__ = ["HOST_BUFFER", "SLOT_BUFFER", "Oracle"]

#: Bytes of the buffers at the PCIe ports of a host proxy and of a box proxy.
HOST_BUFFER, SLOT_BUFFER = 4096, 2048
#: Largest payload of a TLP that crosses the fabric, in dwords.
LARGEST = 128


def is_large(raw):
    """Whether a TLP is too large for any credits."""
    return classify(raw).payload_dwords > LARGEST


class Oracle:
    """Model of a system of proxies: fate of a TLP, and counts.

    Parameters
    ----------
    ports : int
        Downstream ports of the host proxy.
    slots : list of (box, slot)
        Slots bound to the first ports.
    """

    def __init__(self, ports, slots):
        self.switch = golden_switch(ports)
        self.slots = slots
        self.counts = Counter()
        self.tracker = Tracker()
        # Requests whose names are in use. A waiting request blocks no other source, and the order
        # in which sources meet is unknown here: so each request waits for its own name alone.
        self._waiting = []

    def power_limit_seen(self, slot):
        """Count a power limit message from the switch to a slot, sent when the link comes up."""
        self.counts["host.fabric_tx_tlps"] += 1
        self.counts[f"box{self.slots[slot][0]}.fabric_rx_tlps"] += 1

    def totals(self):
        """All counters other than zero, by proxy and name."""
        return self.counts + Counter({f"host.switch_{name}": n
                                      for name, n in self.switch.counts.items()
                                      if name not in ("interrupt", "unlogged")})

    def interrupt_seen(self):
        """Count an MSI or INTx message; their number depends on timing in the switch."""
        self.counts["host.switch_interrupt"] += 1

    def enter(self, port, hostile):
        """TLPs that leave because ``hostile`` enters at ``port`` (UP or a slot), with their
        lanes."""
        return self._enter(port, hostile) + made_by_switch(*self.switch.interrupts())

    def _enter(self, port, hostile):
        limit = self.switch.max_payload(port)
        if port == UP:
            bad = malformed(hostile.raw, limit) is not Malformed.NONE
            if bad and not hostile.discard:
                self.counts["host.pcie_malformed"] += 1
                self.switch.malformed(bytes(16))  # the log is not read
            if len(hostile.raw) > HOST_BUFFER:
                self.counts["host.pcie_overflow"] += 1
            elif bad or hostile.discard:
                self.counts["host.pcie_discarded"] += 1
            else:
                return self._out(port, hostile.raw, self.switch.from_upstream(hostile.raw))
            return []
        box, slot = self.slots[port]
        # A TLP larger than the buffer reaches the parser without its end.
        bad = malformed(hostile.raw[:SLOT_BUFFER]) is not Malformed.NONE
        if hostile.discard:
            self.counts[f"box{box}.slot{slot}_discarded"] += 1
            return []
        if len(hostile.raw) > SLOT_BUFFER:
            self.counts[f"box{box}.slot{slot}_overflow"] += 1
        if bad:
            self.counts[f"box{box}.from_slots_malformed"] += 1
            self.switch.malformed(bytes(16), port)
        elif is_large(hostile.raw):  # credits for such a TLP cannot exist
            self.counts[f"box{box}.fabric_tx_large"] += 1
        else:
            self.counts[f"box{box}.fabric_tx_tlps"] += 1
            self.counts["host.fabric_rx_tlps"] += 1
            if malformed(hostile.raw, limit) is not Malformed.NONE:  # verdict of the host's parser
                self.counts["host.tlp_malformed"] += 1
                self.switch.malformed(bytes(16), port)
                return []
            if classify(hostile.raw).cls is TlpClass.CPL and not self._expected(port, hostile.raw):
                return []
            return self._out(port, hostile.raw, self.switch.from_slot(port, hostile.raw))
        return []

    def _expected(self, slot, raw):
        """Whether the tracker passes a completion of a slot; counts dropped completions."""
        cause = self.tracker.completion(slot, 1, Tlp.unpack(raw))
        if cause is not DropCause.NONE:
            self.counts[f"host.tracking_{cause.name.lower()}"] += 1
        self.counts["host.tracking_irregular"] = self.tracker.irregular
        self._waiting = [request for request in self._waiting
                         if not self.tracker.request(*request)]
        return cause is DropCause.NONE

    def _out(self, source, raw, leaving):
        """Apply the buffers on the way out, and name the lanes in which TLPs keep their order."""
        result = []
        for side, out in leaving:
            name = lane(source, raw, out)
            if side != UP:
                box, _ = self.slots[side]
                if is_large(out):
                    self.counts["host.fabric_tx_large"] += 1
                    continue
                self.counts["host.fabric_tx_tlps"] += 1
                self.counts[f"box{box}.fabric_rx_tlps"] += 1
                if name[1] is TlpClass.NP:
                    request = side, 1, False, Tlp.unpack(out)
                    if not self.tracker.request(*request):
                        self._waiting.append(request)
            result.append((side, name, out))
        return result
