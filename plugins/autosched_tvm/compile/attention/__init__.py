"""Attention as one kernel: scores are used while they are in the cache, and are never in memory as a whole.

Files: `expansion` (of TVM's operator), `pattern` (finds attention in a network), `computation` (its parts as tensor
expressions), `attention_sketch` (their schedule), `fusion` (puts the kernels into a network).
"""
