"""The switch model of cocotbext-pcie, with wires at its ports: an independent routing reference.

The model gets neighbours, but is never edited. It does not know messages, AtomicOps and locked
reads: if no port takes such a TLP, the model raises an exception. Here such a TLP is dropped.
"""

from cocotbext.pcie.core import Switch
from cocotbext.pcie.core.switch import SwitchPort

from .links import DirectPort, replace_port
from .ports import TlpRecord, tolerate
from .tlps import is_message

__all__ = ["ModelSwitch", "Wire"]


class Wire:
    """One end of a wire between two ports, with the interface of a
    :class:`~dxpu_sim.pcie.ports.Mailbox`.
    """

    def __init__(self, other=None):
        self.sent, self.received = [], []
        self.other = other or Wire(self)

    async def send(self, raw, token=None):
        """Deliver a TLP at the other end, without delay."""
        record = TlpRecord(raw, token=token)
        for callback in (*self.sent, *self.other.received):
            callback(record)


def _unknown(tlp):
    """Whether the model raises an exception if no port takes ``tlp``."""
    return is_message(tlp) or tlp.type in (0x01, 0x0C, 0x0D, 0x0E)


class _Sink:
    """Port for TLPs that no other port takes and the model does not know."""

    upstream_tx_handler = None

    def match_tlp(self, tlp):
        return _unknown(tlp)

    def match_tlp_secondary(self, tlp):
        return False

    async def upstream_recv(self, tlp):
        tlp.release_fc()


class ModelSwitch:
    """A switch with device numbers from 0 below it.

    Attributes
    ----------
    wires : dict
        Outer end of the wire at each port: "host" and the numbers of the slots.
    """

    def __init__(self, ports: int):
        self.switch = Switch()
        self.switch.min_dev = 0
        self.wires = {}
        bridges = {"host": self.switch.upstream_bridge}
        bridges |= {n: self.switch.make_port() for n in range(ports)}
        for name, bridge in bridges.items():
            side = "upstream" if name == "host" else "downstream"
            self.wires[name] = wire = Wire()
            port = DirectPort(wire.other)
            replace_port(bridge, side, port)
            tolerate(bridge)
            port.rx_handler = self._guarded(port.rx_handler)
        self.switch.add_switch_port(SwitchPort.downstream(_Sink()))

    @staticmethod
    def _guarded(handler):
        async def receive(tlp):
            try:
                await handler(tlp)
            except Exception as error:
                if not _unknown(tlp) or str(error) not in (
                        "TODO", "Unknown/invalid packet type"):
                    raise
        return receive
