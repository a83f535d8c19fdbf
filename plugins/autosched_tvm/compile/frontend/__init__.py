"""Reads ONNX files and rewrites their graphs into the form that TVM imports best. Nothing here knows TVM."""
