"""Turns a model into tasks, and a task or a whole network with its schedules into machine code.

In the order in which to read. Import of a model: `network_import` (the entry point), `model_sources` (models that were
prepared), `frontend/` (rewrites ONNX), `onnx_import`, `import_check` (compares it with ONNX), `tflite_import`,
`torch_import`, `relax_import` (shared by the last two), `onnx_converters` and `opset_converters` (additions to TVM's
converters), `recurrent/` (recurrent layers), `relax_operators` (properties of imported operators), `relax_calls`
(replaces some), `infinite_reductions` (maxima and minima), `gpu_scans` (cumulative sums), `attention/`, `concats`
(concatenations without copies), `layouts/` (order of values in memory), `task_extraction` (the tasks), `kept_network`
(for a compilation in the same process). Compilation: `targets`, `toolchain` (versions, linker), `candidate_build` (one
candidate), `object_digest` (digest of object code), `shared_library` (a file of kernels), `cuda_compiler` and
`cuda_code` (code for GPUs behind a library), `network_compiler` (a network), `outside_weights` (its weights behind its
library), `side_file` (facts about a compiled network), `lowering` (TVM's passes, and ours), `nan_operands` (relu and
clip keep NaN), `movable_rounding` (kernels that show what ties change), `kernel_sketches` (schedules of our own
kernels), `rules/` (schedules without a search), `winograd/`, `integers/`, `vector_math/`, `intrinsics` (instructions of
the CPU), `python_call` (runs Python on a board), `sentinel_kernels` (sentinel benchmark of a board).
"""
