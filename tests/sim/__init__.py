"""Tests of the simulation parts in ``dxpu_sim``, and short runs of their benches."""
