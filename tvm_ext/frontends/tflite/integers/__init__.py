"""Operators on quantized integers in TensorFlow Lite Micro's arithmetic, where real numbers would round otherwise."""
