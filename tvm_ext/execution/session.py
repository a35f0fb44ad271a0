"""A package kept ready for many runs, whatever it runs on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

import numpy as np

from codegen_c.program.interface import Interface
from tvm_ext.core.errors import RunFailed
from tvm_ext.execution.batches import Inputs, run_batch
from tvm_ext.execution.samples import Sample


class Session(ABC):
    """A package kept ready for many runs: on the host, or on its board in QEMU. `Package.session` opens one.

    A model with states begins reset, and carries them from run to run. Use as a context manager, or call `close`.
    """

    interface: Interface

    def run(self, inputs: Inputs, *, quantize: bool = True) -> dict[str, np.ndarray]:
        """Outputs of one sample or of a batch, as `Package.run` takes and gives them.

        Raises BadInput, NotReady while a window over time is not full, RunFailed for a status other than 0 or no end.
        """
        return run_batch(
            self.interface, inputs, lambda samples: [self.run_sample(one) for one in samples], quantize=quantize
        )

    @abstractmethod
    def run_sample(self, sample: Sample) -> dict[str, np.ndarray]:
        """Outputs of one sample, arrays by name, of the model's own shapes and types. Raises as `run` does."""

    @abstractmethod
    def reset(self) -> None:
        """Begin anew: the next run finds the states as the model begins with them."""

    @abstractmethod
    def close(self) -> None:
        """End the process and remove the temporary folder."""

    def state(self) -> bytes:
        """State that the last run left for the next one; empty for a model that keeps nothing. On the host alone."""
        raise RunFailed(f"the state of {self.interface.model} cannot be read here; open the session on the host.")

    def restore(self, state: bytes) -> None:
        """Go on from what `state` gave, of a session with the same package. Raises BadInput. On the host alone."""
        raise RunFailed(f"the state of {self.interface.model} cannot be set here; open the session on the host.")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
