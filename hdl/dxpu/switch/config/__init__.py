"""Configuration spaces of the switch as plain data: registers, options, memory images."""
