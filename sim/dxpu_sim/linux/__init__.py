"""``dxpu linux``: a stock Linux kernel in stock QEMU is the host of a simulated system.

:mod:`.carrier` is a package of its own: QEMU, the kernel, and a root port, above any PCIe endpoint.
:mod:`.host` puts a simulated system below the root port, and lets guest and simulation go on
together. :mod:`.scenarios` are the tests, with the helpers of :mod:`.run`; :mod:`.acs` judges the
kernel's output.
"""
