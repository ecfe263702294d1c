"""The depacketizer: frames become TLPs and control events, whole or not at all."""
