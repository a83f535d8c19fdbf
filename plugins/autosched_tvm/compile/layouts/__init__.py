"""Memory layout of the values between a network's operators.

In the order in which to read: `layout_option` (the options of a user), `layout`, `packing` (constants in a layout),
`weight` (constants that are packed once for all variants), `layout_kernels` (kernels that only layouts need),
`transposed_convolution`, `operator_layouts` (ways to compute each operator), `transform_cost` (cost of a change of
layout), `pbqp` (solver that finds the cheapest assignment), `layout_assignment` (assigns layouts to a network's
operators), `layout_variants` (variants whose tasks compete).
"""
