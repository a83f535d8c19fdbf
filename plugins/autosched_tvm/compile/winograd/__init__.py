"""Winograd's minimal filtering for convolutions of stride 1: fewer multiplications, for some extra additions.

In the order in which to read: `algebra` (the transforms); `workload` (the computation of each convolution and tile
size); `kernel` (the loop nest for the knobs of a template).
"""
