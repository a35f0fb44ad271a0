"""Names that a TensorFlow Lite file's signature gives to its inputs and outputs.

Converters name the tensors of a graph themselves (`serving_default_image:0`, `StatefulPartitionedCall:0`). The names
that the model's author chose stand in the SignatureDef, and runtimes ask for inputs and outputs by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tflite

from tvm_ext.core.names import unique


def signature_names(
    model: tflite.Model, graph_index: int, inputs: Sequence[int], outputs: Sequence[int]
) -> dict[int, str]:
    """Name of each input and output by the index of its tensor, as the first signature of the graph has them.

    No two names are equal: an output that is called as an input gets `.1` at its end. Tensors that the signature leaves
    out, or names by an empty text, have no entry. Entries for tensors that are no inputs or outputs are skipped: tools
    that renumber tensors leave the signature as it was.
    """
    signature = next(
        (one for one in map(model.SignatureDefs, range(model.SignatureDefsLength())) if _is_of(one, graph_index)), None
    )
    if signature is None:
        return {}
    entries = [*_entries(signature.Inputs, signature.InputsLength(), inputs)]
    entries += _entries(signature.Outputs, signature.OutputsLength(), outputs)
    taken: set[str] = set()
    names: dict[int, str] = {}
    for index, name in entries:
        if index not in names:
            names[index] = unique(name, taken, ".", 1)
    return names


def _is_of(signature: tflite.SignatureDef, graph_index: int) -> bool:
    return signature.SubgraphIndex() == graph_index


def _entries(entry: Callable[[int], tflite.TensorMap], count: int, ports: Sequence[int]) -> list[tuple[int, str]]:
    """Index and name of each tensor that a signature names among some ports. Raises ValueError for too many."""
    if count > len(ports):
        raise ValueError("a signature names more inputs or outputs than its subgraph has")
    found = [(int(one.TensorIndex()), one.Name() or b"") for one in map(entry, range(count))]
    return [(index, name.decode("utf-8", "replace")) for index, name in found if name and index in ports]
