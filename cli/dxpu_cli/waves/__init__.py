"""``dxpu waves``: a window of a run as a wave, with rows that say what happens."""
