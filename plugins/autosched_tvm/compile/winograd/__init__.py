"""Winograd's minimal filtering for 3x3 convolutions of stride 1: fewer multiplications, for some extra additions.

In the order in which to read: the `algebra` of the transforms; the `workload`, which is one computation for each
convolution and tile size; the `kernel`, which is the loop nest that the values of a template's knobs stand for.
"""
