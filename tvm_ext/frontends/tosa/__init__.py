"""Read TOSA graphs (.tosa flatbuffers and MLIR text) as static Relax modules."""
