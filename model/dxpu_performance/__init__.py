"""The performance model: which share of its speed a workload keeps when its GPU is behind a proxy.

Formulas and published figures are those of He et al., "DxPU: Large Scale Disaggregated GPU Pools in
the Datacenter", ACM TACO 2023, sections 3.4, 4 and 5.1; the inputs are measured on the gateware.
"""
