"""The packetizer: TLPs and control events become frames."""
