"""Convert operators on quantized integers in TensorFlow Lite Micro's own integer arithmetic."""
