# %% [markdown]
# # Define an operator of your own
#
# A model contains an operator that its format does not define. The compiler refuses the model, and says how to define
# the operator: as a `CustomOperator`, with its computation in numpy and its C. The operator of this tutorial is an
# envelope follower, which keeps its level from run to run.

# %%
import tempfile
from pathlib import Path

import flatbuffers
import numpy as np
import tflite
from flatbuffers import flexbuffers

import tvm_ext
from tvm_ext import BuildOptions
from tvm_ext.custom import CustomCode, CustomOperator, CustomState, CustomTensor

work = Path(tempfile.mkdtemp())
LENGTH = 64

# %% [markdown]
# The next cell writes the model as a converter would: one custom operator `Envelope` with an option `decay`.


# %%
def vector(b: flatbuffers.Builder, offsets: list[int]) -> int:
    b.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        b.PrependUOffsetTRelative(offset)
    return b.EndVector()


def tensor(b: flatbuffers.Builder, name: str, dtype: int) -> int:
    text, shape = b.CreateString(name), b.CreateNumpyVector(np.array([LENGTH], np.int32))
    tflite.TensorStart(b)
    tflite.TensorAddShape(b, shape)
    tflite.TensorAddType(b, dtype)
    tflite.TensorAddName(b, text)
    return tflite.TensorEnd(b)


def model(decay: int) -> bytes:
    b, options = flatbuffers.Builder(), flexbuffers.Dumps({"decay": decay})
    types = tflite.TensorType.INT16, tflite.TensorType.INT32
    tensors = vector(b, [tensor(b, name, dtype) for name, dtype in zip(("samples", "level"), types, strict=True)])
    places = [b.CreateNumpyVector(np.array([index], np.int32)) for index in range(2)]
    custom = b.CreateByteVector(bytes(options))
    tflite.OperatorStart(b)
    tflite.OperatorAddInputs(b, places[0])
    tflite.OperatorAddOutputs(b, places[1])
    tflite.OperatorAddCustomOptions(b, custom)
    operators = vector(b, [tflite.OperatorEnd(b)])
    tflite.SubGraphStart(b)
    tflite.SubGraphAddTensors(b, tensors)
    tflite.SubGraphAddInputs(b, places[0])
    tflite.SubGraphAddOutputs(b, places[1])
    tflite.SubGraphAddOperators(b, operators)
    graphs, name = vector(b, [tflite.SubGraphEnd(b)]), b.CreateString("Envelope")
    tflite.OperatorCodeStart(b)
    tflite.OperatorCodeAddDeprecatedBuiltinCode(b, tflite.BuiltinOperator.CUSTOM)
    tflite.OperatorCodeAddBuiltinCode(b, tflite.BuiltinOperator.CUSTOM)
    tflite.OperatorCodeAddCustomCode(b, name)
    codes = vector(b, [tflite.OperatorCodeEnd(b)])
    tflite.BufferStart(b)
    buffers = vector(b, [tflite.BufferEnd(b)])
    tflite.ModelStart(b)
    tflite.ModelAddVersion(b, 3)
    tflite.ModelAddOperatorCodes(b, codes)
    tflite.ModelAddSubgraphs(b, graphs)
    tflite.ModelAddBuffers(b, buffers)
    b.Finish(tflite.ModelEnd(b), file_identifier=b"TFL3")
    return bytes(b.Output())


path = work / "envelope.tflite"
path.write_bytes(model(decay=4))

# %% [markdown]
# The operator is still unknown, so the model is refused.

# %%
try:
    tvm_ext.load(path)
except tvm_ext.errors.UnsupportedModel as refused:
    print(refused)

# %% [markdown]
# The C function of the operator is in a header, which is copied into packages. The body of a layer calls this
# function. The state `peak` has two names in the body: `peak` is the value before the run, and `peak_next` is the
# value after it.

# %%
HEADER = """/* One step of an envelope: rises at once, and falls by a fraction of itself. */
#ifndef ENVELOPE_STEP_H
#define ENVELOPE_STEP_H
#include <stdint.h>

static inline int32_t envelope_step(int32_t before, int32_t sample, int32_t decay)
{
    const int32_t size = sample < 0 ? -sample : sample;
    const int32_t fallen = before - (before >> decay);
    return size > fallen ? size : fallen;
}
#endif
"""


def code(call: tvm_ext.custom.CustomCall) -> CustomCode:
    body = f"""peak_next[0] = peak[0];
for (int32_t i = 0; i < {call.present[0].shape[0]}; ++i) {{
    peak_next[0] = envelope_step(peak_next[0], samples[i], {call.options["decay"]});
    level[i] = peak_next[0];
}}"""
    return CustomCode(inputs=("samples",), outputs=("level",), body=body, headers={"envelope_step.h": HEADER})


def follow(call: tvm_ext.custom.CustomCall, arrays: list[np.ndarray]) -> list[np.ndarray]:
    samples, peak = arrays
    level, found = int(peak[0]), []
    for sample in samples.tolist():
        level = max(abs(sample), level - (level >> call.options["decay"]))
        found.append(level)
    return [np.array(found, np.int32), np.array([level], np.int32)]


tvm_ext.custom.register_operator(
    CustomOperator(
        name="Envelope",
        outputs=lambda call: [CustomTensor(shape=call.present[0].shape, dtype="int32")],
        states=lambda call: [CustomState(name="peak", initial=np.zeros(1, np.int32))],
        reference=follow,
        code=code,
        refuses=lambda call: None if call.present[0].dtype == "int16" else "it supports int16 only",
    )
)

# %% [markdown]
# Now the model compiles, and runs on the host and on a Cortex-M4. No runtime knows the operator, so verification
# compares the C with the numpy function above, and says so.

# %%
package = tvm_ext.build(path, "cortex_m4", work / "envelope", BuildOptions())
for target, result in package.report["verify"].items():
    print(f"{target}: {result['differing']} of {result['elements']} elements differ from {result['reference']}")
    assert result["passed"] and result["differing"] == 0

# %% [markdown]
# The level carries over from run to run, and a reset clears it.

# %%
loud, quiet = np.full(LENGTH, 20000, np.int16), np.zeros(LENGTH, np.int16)
with package.session() as session:
    session.run({"samples": loud})
    falling = session.run({"samples": quiet})["level"]
    session.reset()
    silent = session.run({"samples": quiet})["level"]
print(f"after a loud block: {falling[0]} falls to {falling[-1]}; after a reset: {silent.max()}")
assert falling[0] == 18750 and not silent.any()
