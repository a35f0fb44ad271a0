"""One-operator TensorFlow Lite files: the operators that TensorFlow Lite Micro's Python runtime registers."""
