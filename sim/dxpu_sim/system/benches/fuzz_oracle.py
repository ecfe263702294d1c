"""What becomes of any TLP that enters a system of proxies, and what is counted."""

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
#: Dwords of data that cross the fabric in one TLP.
LARGEST = 128


def is_large(raw):
    """Whether there can be no credits for a TLP."""
    return classify(raw).payload_dwords > LARGEST


class Oracle:
    """What a system of proxies does with a TLP; counts what it should count.

    Parameters
    ----------
    ports : int
        Downstream ports of the host proxy.
    slots : list of (box, slot)
        What is bound to the first ports.
    """

    def __init__(self, ports, slots):
        self.switch = golden_switch(ports)
        self.slots = slots
        self.counts = Counter()
        self.tracker = Tracker()
        # Requests whose names are in use. What waits holds up no other source, and the order in
        # which sources meet is not known here: so each waits for its own name alone.
        self._waiting = []

    def power_limit_seen(self, slot):
        """A message to a slot, which the switch makes when the link comes up."""
        self.counts["host.fabric_tx_tlps"] += 1
        self.counts[f"box{self.slots[slot][0]}.fabric_rx_tlps"] += 1

    def totals(self):
        """Every counter that is not zero, by proxy and name."""
        return self.counts + Counter({f"host.switch_{name}": n
                                      for name, n in self.switch.counts.items()
                                      if name not in ("interrupt", "unlogged")})

    def interrupt_seen(self):
        """An MSI or INTx message left; how many depends on what meets in the switch."""
        self.counts["host.switch_interrupt"] += 1

    def enter(self, port, hostile):
        """What leaves when ``hostile`` enters at ``port`` (UP or a slot), and whose TLP it is."""
        return self._enter(port, hostile) + made_by_switch(*self.switch.interrupts())

    def _enter(self, port, hostile):
        limit = self.switch.max_payload(port)
        if port == UP:
            bad = malformed(hostile.raw, limit) is not Malformed.NONE
            if bad and not hostile.discard:
                self.counts["host.pcie_malformed"] += 1
                self.switch.malformed(bytes(16))  # nobody will read the log
            if len(hostile.raw) > HOST_BUFFER:
                self.counts["host.pcie_overflow"] += 1
            elif bad or hostile.discard:
                self.counts["host.pcie_discarded"] += 1
            else:
                return self._out(port, hostile.raw, self.switch.from_upstream(hostile.raw))
            return []
        box, slot = self.slots[port]
        # One that is larger than the buffer reaches the parser without its end.
        bad = malformed(hostile.raw[:SLOT_BUFFER]) is not Malformed.NONE
        if hostile.discard:
            self.counts[f"box{box}.slot{slot}_discarded"] += 1
            return []
        if len(hostile.raw) > SLOT_BUFFER:
            self.counts[f"box{box}.slot{slot}_overflow"] += 1
        if bad:
            self.counts[f"box{box}.from_slots_malformed"] += 1
            self.switch.malformed(bytes(16), port)
        elif is_large(hostile.raw):  # for which there can be no credits
            self.counts[f"box{box}.fabric_tx_large"] += 1
        else:
            self.counts[f"box{box}.fabric_tx_tlps"] += 1
            self.counts["host.fabric_rx_tlps"] += 1
            if malformed(hostile.raw, limit) is not Malformed.NONE:  # as the host's parser says
                self.counts["host.tlp_malformed"] += 1
                self.switch.malformed(bytes(16), port)
                return []
            if classify(hostile.raw).cls is TlpClass.CPL and not self._expected(port, hostile.raw):
                return []
            return self._out(port, hostile.raw, self.switch.from_slot(port, hostile.raw))
        return []

    def _expected(self, slot, raw):
        """What the tracker says of a completion of a slot."""
        cause = self.tracker.completion(slot, 1, Tlp.unpack(raw))
        if cause is not DropCause.NONE:
            self.counts[f"host.tracking_{cause.name.lower()}"] += 1
        self.counts["host.tracking_irregular"] = self.tracker.irregular
        self._waiting = [request for request in self._waiting
                         if not self.tracker.request(*request)]
        return cause is DropCause.NONE

    def _out(self, source, raw, leaving):
        """Buffers on the way out, and which TLPs keep their order: those of one queue here."""
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
