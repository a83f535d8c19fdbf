"""Names that programs take from the inside of onnxruntime: `onnxruntime.capi`."""
