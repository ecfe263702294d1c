"""``dxpu top``: what a pool, or a single node, does at the moment."""
