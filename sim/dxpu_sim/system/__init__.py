"""The whole system: a host, host proxy, Ethernet, box proxies and GPUs, with tools for benches.

:mod:`.benches` holds the cocotb tests.
"""
