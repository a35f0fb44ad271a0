"""Operators brought as numpy and C together: a user's, TensorFlow Lite Micro's own, NonMaxSuppression of ONNX."""
