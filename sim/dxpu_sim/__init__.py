"""Simulations: designs, models and benches, a room for each subject.

A *design* is the top of a simulation in Amaranth, a *bench* a module of cocotb tests that runs on a
design. :mod:`.run` builds and runs both; :mod:`.pcie` and :mod:`.ethernet` hold models and checkers
of the two interfaces; the other rooms hold the simulations themselves.
"""
