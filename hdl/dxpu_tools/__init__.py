"""Tools around the gateware that do not depend on a board or a simulator.

Conversion of a component to Verilog, origin of a build, child processes, files, the cache and its
keys.
"""
