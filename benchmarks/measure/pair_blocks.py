"""Block of the attributes in pairs: cases by format and by their ends."""

from __future__ import annotations

from benchmarks.measure.block_parts import grouped, result
from benchmarks.measure.tables import table

_FORMS = {"onnx": "ONNX", "torch": "PyTorch", "tflite": "TensorFlow Lite"}
_RIGHT, _LEFT_OUT = ("equal", "standard"), ("not taken", "stays float")


def attribute_pairs() -> str:
    """Cases of each format, in floats and quantized here, as far as the runtime takes them."""
    rows = []
    for form, found in result("attribute_pairs")["forms"].items():
        for mode, title in (("float", "as it is"), ("int8", "quantized here")):
            counts = {verdict: count for verdict, count in found[mode].items() if verdict not in _LEFT_OUT}
            if not any(counts.values()):
                continue
            right = sum(counts[verdict] for verdict in _RIGHT)
            cells = (sum(counts.values()), right, counts["refused"], counts["wrong"], counts["foreign"])
            rows.append((f"{_FORMS[form]}, {title}", *map(grouped, cells)))
    return table(("operators", "cases", "equal", "refused, with the reason", "wrong", "other errors"), rows)
