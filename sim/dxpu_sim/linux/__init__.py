"""``dxpu linux``: a stock Linux kernel in stock QEMU is the host of a simulated system.

:mod:`.images` gets QEMU and the kernel, :mod:`.guest` runs them. :mod:`.remote` and :mod:`.vmd` are
the PCI device that QEMU shows the kernel; :mod:`.root_port` turns its accesses into TLPs.
:mod:`.host` lets guest and simulation go on together. :mod:`.scenarios` are the tests, with the
helpers of :mod:`.run`; :mod:`.complaints` and :mod:`.acs` judge the kernel's output.
"""
