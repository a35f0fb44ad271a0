"""Read ONNX, opset 7 and up: from a file to a checked ModelProto to a Relax function with the model's own names."""
