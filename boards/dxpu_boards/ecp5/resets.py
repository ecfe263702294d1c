"""Resets of many flip-flops on the clock network of an ECP5.

A reset of the core goes to thousands of flip-flops all over the part. As an ordinary net it is the
longest net and takes wires that other nets need; where tiles are full, the router tears it up again
and again. The clock network also reaches the reset input of every slice, and has room: nextpnr
routes the output of a DCCA there, but inserts DCCAs only before clocks.
Ref: Lattice FPGA-TN-02200 (ECP5 sysCLOCK), primary clocks
"""

from collections import Counter

__all__ = ["LEAST", "promote_resets"]

#: Number of flip-flops from which a reset is worth one of the 16 global nets.
LEAST = 1000


def promote_resets(module: dict, least: int = LEAST) -> dict[int, int]:
    """Put a DCCA between each net that resets at least ``least`` flip-flops and their reset inputs.

    Other loads of such a net, mainly LUTs, stay on it: the clock network does not reach them.

    Parameters
    ----------
    module : dict
        A flat netlist of ECP5 cells as written by Yosys' `write_json`; changed in place.

    Returns
    -------
    dict
        Number of flip-flops reset by each new net.
    """
    loads = Counter(bit for cell in _registers(module) for bit in cell["connections"]["LSR"]
                    if isinstance(bit, int))
    fresh = 1 + max(bit for cell in module["cells"].values()
                    for bits in cell["connections"].values() for bit in bits
                    if isinstance(bit, int))
    new = {bit: fresh + n for n, bit in enumerate(sorted(
        bit for bit, count in loads.items() if count >= least))}
    for cell in _registers(module):
        cell["connections"]["LSR"] = [new.get(bit, bit) for bit in cell["connections"]["LSR"]]
    for n, (source, target) in enumerate(new.items()):
        module["netnames"][f"global_reset{n}"] = {
            "hide_name": 0, "bits": [target], "attributes": {}}
        module["cells"][f"global_reset{n}_buffer"] = {
            "hide_name": 0, "type": "DCCA", "parameters": {}, "attributes": {},
            "port_directions": {"CLKI": "input", "CE": "input", "CLKO": "output"},
            "connections": {"CLKI": [source], "CE": ["1"], "CLKO": [target]}}
    return {target: loads[source] for source, target in new.items()}


def _registers(module):
    return (cell for cell in module["cells"].values()
            if cell["type"] == "TRELLIS_FF" and "LSR" in cell["connections"])
