"""``dxpu capture``: frames of a board's mirror port, as a capture."""
