"""LSTM, GRU and RNN layers: one matrix product for the inputs of all steps, then one kernel for the recurrence.

The product is an ordinary task for the tuner. The kernel is scheduled by rule: it keeps the gates of a block of hidden
units in vector registers, reads the recurrent weights sequentially, and runs the two directions of a bidirectional
layer, or the parts of a large layer, in parallel. A layer has two kernels, however many steps the network has.

Definitions: the ONNX operators LSTM, GRU and RNN, versions 7 to 22, and ONNX Runtime's DynamicQuantizeLSTM.

Files: `layer` (sizes and options), `weights` and `integer_weights` (packed weights), `kernel` (the recurrence),
`integer_kernel` (the same with 8-bit weights), `converters` (from ONNX).
"""
