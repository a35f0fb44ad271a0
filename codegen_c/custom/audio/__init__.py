"""Operators of TensorFlow Lite Micro's signal library: audio front ends, mostly in integers, bit for bit.

Each file defines `OPERATORS`. Their C is in the headers of `runtime/`. Source of the arithmetic:
github.com/tensorflow/tflite-micro, signal/.
"""
