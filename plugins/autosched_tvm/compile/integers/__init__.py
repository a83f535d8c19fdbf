"""Kernels that compute with 8-bit numbers.

Files: `dot_instructions` (the CPU's instructions for them), `product` (the computation of a product, packed weights),
`tiled_product` (its schedule), `packed_products` (puts them into a network).
"""
