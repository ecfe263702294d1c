"""``dxpu linux``: a stock Linux kernel in stock QEMU is the host of a simulated system.

:mod:`.images` gets QEMU and the kernel, :mod:`.guest` runs them. :mod:`.remote` and :mod:`.vmd` are
the PCI device that QEMU shows the kernel; :mod:`.root_port` turns its accesses into TLPs.
:mod:`.domain` connects both. :mod:`.console` is the guest's shell. :mod:`.tasks` runs a root port
inside a simulation or outside of one: :mod:`.carrier` is the package for endpoints of others, with
a socket below. :mod:`.host` lets guest and simulation go on together. :mod:`.scenarios` are the
tests, with the helpers of :mod:`.run`; :mod:`.complaints` and :mod:`.acs` judge the kernel's
output.
"""
