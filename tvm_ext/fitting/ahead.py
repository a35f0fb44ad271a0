"""Tries to make a model fit, compiled by several services at once: also those that are only likely to be asked for.

Which try follows is decided by what came of those before (`next_try.py`): results are the same for any number of
services, and what was compiled in vain is left.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import islice

import tvm

from codegen_c.kernels.figures import UNMEASURED, KernelFigures
from tvm_ext.compilation.model_forms import Forms
from tvm_ext.core.errors import UnsupportedModel, WorkerRefused
from tvm_ext.core.options import BuildOptions, Quantize
from tvm_ext.core.platform import Platform
from tvm_ext.fitting.fitter import Asked, TryOutcome
from tvm_ext.fitting.next_try import Try
from tvm_ext.services.job import Job, OpenServices

_TRY, _READ = "tvm_ext.fitting.job.try_job", "tvm_ext.fitting.job.read_job"
Compute = Callable[[Asked, BuildOptions], object]
_Key = tuple[Try, str]


class TriesAhead:
    """Outcomes of a model's tries by services, which have likely ones to do while this process is busy with one.

    compute: does a try here, and keeps what it comes to. figures: as in `fitter_of`.
    The first try is asked for alone, as mostly nothing follows it: services read the model meanwhile.
    """

    def __init__(
        self,
        forms: Forms,
        platform: Platform,
        services: OpenServices,
        compute: Compute,
        figures: KernelFigures = UNMEASURED,
    ) -> None:
        self._forms, self._platform, self._services, self._compute = forms, platform, services, compute
        self._figures = figures
        self._handed_over: dict[_Key, tuple[Asked, Future[bytes]]] = {}
        self._own = set[_Key]()
        self._texts: dict[Quantize, bytes] = {}

    def outcome(self, asked: Asked, options: BuildOptions, likely: Iterator[Asked]) -> TryOutcome | None:
        """Outcome of a try by a service; None where none has begun it, or comes to an end with it.

        Raises WorkerRefused.
        """
        key = asked[1], self._told(options)
        if not self._own:
            for _ in range(self._services.at_once):
                self._submit(_READ, asked, options)
        else:
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
                with suppress(UnsupportedModel):  # who asks for it will meet it again
                    self._compute(self._handed_over[following][0], options)
        error = future.exception()
        if isinstance(error, WorkerRefused):  # every later answer of that worker would be refused, too
            raise error
        return None if error else TryOutcome.from_json(future.result())

    def _hand_over(self, likely: Iterator[Asked], options: BuildOptions) -> None:
        """Hand over tries in the order in which they may be asked for, and take back those that no longer may."""
        told = self._told(options)
        following = {(asked[1], told): asked for asked in islice(likely, self._services.most_ahead)}
        for key in [key for key in self._handed_over if key not in following and key not in self._own]:
            if self._taken_back(key):
                del self._handed_over[key]
        for key, asked in following.items():
            if key not in self._own and key not in self._handed_over:
                self._handed_over[key] = asked, self._submit(_TRY, asked, options)

    def _taken_back(self, key: _Key) -> bool:
        """True for a try that no service has begun, and none will."""
        return self._handed_over[key][1].cancel()

    def _told(self, options: BuildOptions) -> str:
        """Options by which outcomes differ."""
        return (options if _limits_decide(self._platform, options) else replace(options, ram=None)).to_json()

    def _submit(self, function: str, asked: Asked, options: BuildOptions) -> Future[bytes]:
        method, one = asked
        quantize = method.options.quantize
        if quantize not in self._texts:
            self._texts[quantize] = tvm.ir.save_json(self._forms(quantize)).encode()
        texts = json.dumps(asdict(one)), self._told(options), self._platform.to_json(), self._figures.text
        inputs = (*(text.encode() for text in texts), self._texts[quantize])
        return self._services.submit(Job(function=function, inputs=inputs))


def _limits_decide(platform: Platform, options: BuildOptions) -> bool:
    """True where what a try comes to depends on the bytes that memories may give."""
    moves = options.memories == "all" and len(options.limits_bytes(platform)) > 1
    return moves or len(options.processors_of(platform)) > 1
