"""Operators of TensorFlow Lite Micro's signal library: audio front ends, mostly of integers, to its bytes.

Each file defines `OPERATORS`. Their C stands in headers of `runtime/`. The arithmetic is that of
github.com/tensorflow/tflite-micro, signal/.
"""
