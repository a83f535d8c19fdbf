"""Kernels that compute with 8-bit numbers.

Files: `dot_instructions` (the CPU's instructions for them), `product` and `convolution` (the computations, packed
weights), `dot_sketch` and `depthwise_sketch` (their schedules), `schedule_steps` (what those share),
`onnx_convolution` (from ONNX), `packed_products` (puts products into a network).
"""
