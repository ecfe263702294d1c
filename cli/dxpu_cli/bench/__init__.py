"""``dxpu bench``: measurements by simulation, by synthesis, and of both against the shape."""
