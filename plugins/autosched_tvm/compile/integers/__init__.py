"""Kernels that compute with 8-bit numbers, or with weights of 4 bits.

Files: `dot_instructions` and `tile_instructions` (the CPU's instructions for them, on vectors and on tiles), `product`,
`convolution` and `tile_convolution` (the computations, packed weights), `dot_sketch`, `tile_sketch` and
`depthwise_sketch` (their schedules), `schedule_steps` (what those share), `nibbles` and `nibble_sketch` (weights of 4
bits), `onnx_convolution`, `onnx_lookup` and `onnx_nibbles` (from ONNX), `table_registers` (tables of 256 entries in
registers), `packed_products` (puts products into a network).
"""
