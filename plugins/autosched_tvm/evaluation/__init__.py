"""Compares a compiled network with other engines, and its outputs with a reference.

Speed: `build_comparison` (the final evaluation), `baseline_comparison` (the baseline, and early builds),
`engine_benchmark` (engines take turns, each in its own process), `first_inference` (their starts), `engines`,
`non_onnx_engines`, `model_forms` (forms of a model for ONNX Runtime), `board_rival` and `board_program` (ONNX Runtime
on a board). Outputs: `verification`, `verification_messages`, `output_comparison` (tolerances), `kernel_comparison`,
`onnx_reference`, `standard_reference` (for models that ONNX Runtime cannot run), `non_onnx_reference`,
`quantised_reference`, `input_samples`, `isolated_run` (a build that may crash), `operator_check` (operators one by one,
before the search), `special_values` (NaN and infinities), `kept_samples` (for a check where it runs), `padding_check`
(inputs of other sizes), `wrong_schedules` and `schedule_bisection` (find and remove schedules with wrong results).
"""
