"""Simulations of the virtual switch: comparisons with models, hostile hosts, PCIe passthrough."""
