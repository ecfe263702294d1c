"""A stock Linux kernel in stock QEMU is the host of a simulated system.

:mod:`.images` gets QEMU and the kernel, :mod:`.guest` runs them, :mod:`.remote` and :mod:`.vmd` are
what QEMU shows the kernel, :mod:`.root_port` makes TLPs of it, :mod:`.host` lets guest and
simulation go on together, :mod:`.scenarios` are what is tried, by the means of :mod:`.run`.
"""
