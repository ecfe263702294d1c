"""Ethernet in simulations: models of switch and DDR buffers, captures, benches of MAC and RGMII."""
