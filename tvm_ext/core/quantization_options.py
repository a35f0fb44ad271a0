"""Options of quantization that go together, and why others do not."""

from __future__ import annotations


def quantization_problem(*, quantize: str, io_type: str, activations: str, weights: str) -> str | None:
    """Why these four cannot be combined, as users read it; None where they can."""
    if quantize == "none" and io_type != "int8":
        return "io_type = 'float32': it says what quantization leaves; it needs quantize = 'int8' or 'auto'."
    if quantize == "none" and activations != "int8":
        return f"activations = {activations!r}: it says what quantization makes; it needs quantize = 'int8' or 'auto'."
    if activations == "int16" and weights != "int8":
        return (
            f"weights = {weights!r} and activations = 'int16': kernels for weights of 4 bits take activations of 8. "
            "Choose activations = 'mixed', or weights = 'int8'."
        )
    return None
