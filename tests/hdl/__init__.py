"""Tests of the gateware, a folder for each room of ``hdl/dxpu``."""
