"""Samples that a package's self-test draws on the device. Verification on this machine uses the same samples.

Their number is limited by the time of all runs of a self-test on the device, and by the time of the kernels' references
on this machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from codegen_c.emit.drawn_vectors import DrawnVector, DrawnVectors
from codegen_c.program.drawn_inputs import FORMS, NOISE, Domain, Recipe, drawn, recipe_number
from codegen_c.program.interface import Interface
from codegen_c.program.program import Program
from tvm_ext.verification.input_ranges import Range
from tvm_ext.verification.verify import compare, largest

Sample = Mapping[str, np.ndarray]

MOST_DRAWN = 96
LEAST_DRAWN = 4
MOST_MACS = 300_000_000
"""Multiply-accumulates of all drawn vectors of a self-test together: a few seconds on a microcontroller."""
NUM_JUDGED, DRAWN_PER_JUDGED = 3, 8
"""Number of drawn samples of a quantized model on which each step is judged, as on the plain samples: at most 3, and
one for every 8 drawn samples, so that large models have fewer."""
MOST_CALLER_BYTES = 16384
"""Bytes of inputs up to which a self-test has buffers for them, if the application usually holds the inputs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnSamples:
    """Drawn samples. domains: of each input, in the interface's order. recipes: how each sample is drawn."""

    domains: tuple[Domain, ...]
    recipes: tuple[Recipe, ...]
    samples: tuple[dict[str, np.ndarray], ...]


def draw_samples(interface: Interface, ranges: Mapping[str, Range], program: Program) -> DrawnSamples | None:
    """Draw as many samples as a device can run in a few seconds; None if a self-test cannot draw the inputs."""
    held_bytes = sum(port.num_bytes for port in interface.inputs)
    if not interface.inputs or (interface.io == "caller" and held_bytes > MOST_CALLER_BYTES):
        return None
    macs = sum(call.implementation.macs for call in program.kernel_calls())
    count = min(MOST_DRAWN, max(LEAST_DRAWN, MOST_MACS // max(macs, held_bytes * 8, 1)))
    domains = tuple(Domain.of(port, ranges.get(port.source)) for port in interface.inputs)
    forms = FORMS if is_exact(program) else NOISE
    recipes = tuple(recipe_number(number, forms) for number in range(count))
    samples = tuple(
        {
            port.source: drawn(port, position, domain, recipe)
            for position, (port, domain) in enumerate(zip(interface.inputs, domains, strict=True))
        }
        for recipe in recipes
    )
    return DrawnSamples(domains=domains, recipes=recipes, samples=samples)


def is_exact(program: Program) -> bool:
    """Return True if every processor computes the same bytes as the kernels' references."""
    return all(call.implementation.is_reproducible for call in program.kernel_calls())


def drawn_vectors(
    samples: DrawnSamples, outputs: Sequence[Sample], everything: Sequence[Sample], *, exact: bool
) -> DrawnVectors | None:
    """Return the self-test's drawn vectors; None without outputs.

    outputs: outputs for the first drawn samples. everything: outputs for all samples, whose largest magnitudes scale
    the tolerance.
    """
    if not outputs:
        return None
    scales = {name: max(largest(one[name]) for one in everything) for name in outputs[0]}
    vectors = [DrawnVector(recipe=recipe, outputs=one) for recipe, one in zip(samples.recipes, outputs, strict=False)]
    return DrawnVectors(domains=samples.domains, vectors=tuple(vectors), exact=exact, largest=scales)


def drawn_problems(given: Sequence[Sample], expected: Sequence[Sample], tolerance: float) -> list[str]:
    """Return a sentence if outputs of the package for drawn samples differ from those of its kernels' references."""
    judged = compare(given, expected, tolerance=tolerance)
    if judged.passed:
        return []
    return [
        f"host: outputs of drawn inputs differ from the kernels' references by {judged.max_abs_error:g}, "
        f"in {judged.differing} of {judged.elements} elements"
    ]
