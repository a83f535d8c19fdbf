"""Kernels that compute with 8-bit numbers.

Files: `dot_instructions` (the CPU's instructions for them), `product` and `convolution` (the computations, packed
weights), `sketch` (their schedules), `dot_sketch`, `depthwise_sketch` and `schedule_steps` (its parts),
`onnx_convolution` (from ONNX), `packed_products` (puts products into a network).
"""
