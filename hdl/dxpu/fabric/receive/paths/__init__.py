"""Frames from the MACs of all paths to one parser."""
