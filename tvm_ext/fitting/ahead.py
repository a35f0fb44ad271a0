"""Speculative compilation: services compile the next tries of a search in parallel, before the search needs them.

The outcomes of earlier tries decide which try follows (`next_try.py`). The result is therefore the same for any number
of services, and tries that turn out to be unnecessary are discarded.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import islice

import tvm

from codegen_c.kernels.measurements import UNMEASURED, KernelMeasurements
from tvm_ext.compilation.model_forms import Forms
from tvm_ext.core.errors import UnsupportedModel, WorkerRefused
from tvm_ext.core.options import BuildOptions, Quantize
from tvm_ext.core.platform import Platform
from tvm_ext.fitting.fitter import Asked, TryOutcome
from tvm_ext.fitting.next_try import Try
from tvm_ext.services.job import Job, OpenServices

_TRY = "tvm_ext.fitting.job.try_job"
Compute = Callable[[Asked, BuildOptions], object]
_Key = tuple[Try, str]


class TriesAhead:
    """Outcomes of a model's tries, compiled by services that also work on likely later tries.

    compute: compiles a try in this process and keeps its outcome. measurements: costs of kernels, as in `fitter_of`.
    The first try is compiled in this process, because usually no other follows. The next tries are, too, until the
    search has taken as long as a service takes to start: a short search would end before services helped it.
    """

    def __init__(
        self,
        forms: Forms,
        platform: Platform,
        services: OpenServices,
        compute: Compute,
        measurements: KernelMeasurements = UNMEASURED,
    ) -> None:
        self._forms, self._platform, self._services, self._compute = forms, platform, services, compute
        self._measurements = measurements
        self._handed_over: dict[_Key, tuple[Asked, Future[bytes]]] = {}
        self._own = set[_Key]()
        self._begin_s = time.process_time()
        self._texts: dict[Quantize, bytes] = {}

    def outcome(self, asked: Asked, options: BuildOptions, likely: Iterator[Asked]) -> TryOutcome | None:
        """Return the outcome of a try by a service; None if no service has begun the try, or the service failed.

        While the outcome is not ready, this process compiles likely later tries itself. Raises WorkerRefused.
        """
        key = asked[1], self._told(options)
        if self._own and time.process_time() - self._begin_s >= self._services.start_s:
            self._hand_over(likely, options)
        if key in self._own or key not in self._handed_over or self._taken_back(key):
            self._own.add(key)
            return None
        future = self._handed_over[key][1]
        while not future.done():
            waiting = (one for one in self._handed_over if one[1] == key[1] and one not in self._own)
            following = next((one for one in waiting if self._taken_back(one)), None)
            if following is None:
                wait([future])
            else:
                self._own.add(following)
                with suppress(UnsupportedModel):  # the error is raised again if the search needs this try
                    self._compute(self._handed_over[following][0], options)
        error = future.exception()
        if isinstance(error, WorkerRefused):  # every later result of the same worker would be refused, too
            raise error
        return None if error else TryOutcome.from_json(future.result())

    def _hand_over(self, likely: Iterator[Asked], options: BuildOptions) -> None:
        """Submit likely tries in their order, and cancel submitted tries that are no longer likely."""
        told = self._told(options)
        following = {(asked[1], told): asked for asked in islice(likely, self._services.most_ahead)}
        for key in [key for key in self._handed_over if key not in following and key not in self._own]:
            if self._taken_back(key):
                del self._handed_over[key]
        for key, asked in following.items():
            if key not in self._own and key not in self._handed_over:
                self._handed_over[key] = asked, self._submit(asked, options)

    def _taken_back(self, key: _Key) -> bool:
        """Cancel a submitted try. Return True if no service had begun it."""
        return self._handed_over[key][1].cancel()

    def _told(self, options: BuildOptions) -> str:
        """Return the options as text, without a limit that does not affect outcomes, so that tries can be shared."""
        return (options if _limits_decide(self._platform, options) else replace(options, ram=None)).to_json()

    def _submit(self, asked: Asked, options: BuildOptions) -> Future[bytes]:
        method, one = asked
        quantize = method.options.quantize
        if quantize not in self._texts:
            self._texts[quantize] = tvm.ir.save_json(self._forms(quantize)).encode()
        texts = json.dumps(asdict(one)), self._told(options), self._platform.to_json(), self._measurements.text
        inputs = (*(text.encode() for text in texts), self._texts[quantize])
        return self._services.submit(Job(function=_TRY, inputs=inputs))


def _limits_decide(platform: Platform, options: BuildOptions) -> bool:
    """Return True if the outcome of a try depends on the limits of memories."""
    moves = options.memories == "all" and len(options.limits_bytes(platform)) > 1
    return moves or len(options.processors_of(platform)) > 1
