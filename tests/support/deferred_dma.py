"""Runs a model with a DMA that is as slow as it may be: nothing arrives before somebody waits for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from codegen_c.backend.build import Compiled
from tvm_ext.execution.host_model import HostModel

Array = np.ndarray

SOURCE = """#include "tvm_ext_dma.h"
#include <string.h>

static struct {
    void *target;
    const void *source;
    size_t bytes;
} queue[4096];
static uint32_t done;

void tvm_ext_dma_start(uint32_t number, void *target, const void *source, size_t bytes)
{
    done = number == 0u ? 0u : done;
    queue[number].target = target;
    queue[number].source = source;
    queue[number].bytes = bytes;
    memset(target, 0xA5, bytes);
}

void tvm_ext_dma_wait(uint32_t number)
{
    for (; done <= number; done++) {
        memcpy(queue[done].target, queue[done].source, queue[done].bytes);
    }
}
"""


def run_deferred(compiled: Compiled, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Outputs under the model's own names."""
    with TemporaryDirectory(prefix="tvm_ext_") as name:
        folder = Path(name)
        for file_name, text in {**compiled.sources(), "deferred.c": SOURCE}.items():
            (folder / file_name).write_text(text, encoding="utf-8")
        with HostModel(folder, compiled.interface) as model:
            return model.run(inputs)
