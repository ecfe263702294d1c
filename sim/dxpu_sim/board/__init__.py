"""A stand-alone box on a board, simulated from its pins on: platform, flash, RGMII, PLL."""
