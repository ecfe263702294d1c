"""``dxpu faults``: the fabric over an Ethernet that loses, doubles, delays and changes frames."""
