"""The GPU in simulations: model and driver; design and benches of the soft GPU."""
