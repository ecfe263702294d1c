"""``dxpu waves``: a window of a run as a wave, with rows in words."""
