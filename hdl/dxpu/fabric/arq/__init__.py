"""Retransmission: replay memory, go-back-N, selective repeat, frames that came early."""
