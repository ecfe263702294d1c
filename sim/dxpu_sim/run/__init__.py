"""Building and running simulations: Verilog, Verilator, caches, clocks, traces, watchdog."""
