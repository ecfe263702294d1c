"""``dxpu console``: registers, bindings and set-up of a board over its serial line."""
