"""Kernels that compute with 8-bit integers, or with 4-bit weights.

Files: `dot_instructions` and `tile_instructions` (the CPU's instructions for them, on vectors and on tiles), `product`,
`convolution`, `tile_convolution` and `winograd_convolution` (the computations, packed weights), `dot_sketch`,
`tile_sketch`, `winograd_sketch` and `depthwise_sketch` (their schedules), `schedule_steps` (steps that the schedules
share), `nibbles` and `nibble_sketch` (4-bit weights), `onnx_convolution`, `onnx_lookup` and `onnx_nibbles` (ONNX
converters), `table_registers` (tables of 256 entries in registers), `packed_products` (puts products into a network).
"""
