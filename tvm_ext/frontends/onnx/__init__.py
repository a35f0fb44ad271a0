"""ONNX, opset 7 and up: file -> checked ModelProto -> Relax function with the model's own names."""
