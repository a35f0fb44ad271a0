"""Custom operators as numpy and C: those of users, of TensorFlow Lite Micro, and NonMaxSuppression of ONNX."""
