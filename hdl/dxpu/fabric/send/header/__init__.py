"""Order of frames, and the first bytes of each."""
