"""Read TensorFlow Lite files as static Relax modules."""
