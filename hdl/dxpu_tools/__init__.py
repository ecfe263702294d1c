"""Tools around the gateware, independent of boards and simulators.

Conversion of a component to Verilog, origin of a build, child processes, files, the cache and its
keys.
"""
