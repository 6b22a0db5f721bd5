"""MIG layouts that an operator declares: a file of layouts, and a node label that chooses one.

Enters: the file (the format of NVIDIA's mig-parted and GPU operator), the node's label, the hardware. Leaves: GPUs that are
cut as declared, or as they were, and a label that says which. `keeper.LayoutKeeper` is the entrance; `config`
is pure; `cutter` changes hardware, and survives a kill at any point.
"""
