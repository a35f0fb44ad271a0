"""Tries to make a model fit, compiled by several services at once: also those that are only likely to be asked for.

Which try follows is decided by what came of those before (`next_try.py`): results are the same for any number of
services, and what was compiled in vain is left.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, replace
from functools import cache

import tvm

from tvm_ext.core.options import BuildOptions, Quantize
from tvm_ext.core.platform import Platform
from tvm_ext.fitter import Ahead, Asked
from tvm_ext.model_forms import Forms
from tvm_ext.next_try import Try
from tvm_ext.services.job import Job, OpenServices
from tvm_ext.try_outcome import TryOutcome

_TRY, _READ = "tvm_ext.try_job.try_job", "tvm_ext.try_job.read_job"


def tries_ahead(forms: Forms, platform: Platform, services: OpenServices) -> Ahead:
    """Outcomes of a model's tries by services; those that none has begun are left to who asks.

    The first try is asked for alone, as mostly nothing follows it: services read the model meanwhile.
    """
    running: dict[tuple[Try, str], Future[bytes]] = {}
    reading: list[Future[bytes]] = []
    board = platform.to_json()

    @cache
    def form(quantize: Quantize) -> str:
        return tvm.ir.save_json(forms(quantize))

    def told(options: BuildOptions) -> str:
        return options.to_json() if _limits_decide(platform, options) else replace(options, ram=None).to_json()

    def submit(function: str, asked: Asked, options: BuildOptions) -> Future[bytes]:
        method, one = asked
        inputs = (json.dumps(asdict(one)), told(options), board, form(method.options.quantize))
        return services.submit(Job(function=function, inputs=tuple(text.encode() for text in inputs)))

    def begin(likely: Iterator[Asked], options: BuildOptions) -> None:
        """Hand over tries until all services have something to do."""
        while sum(not other.done() for other in (*reading, *running.values())) < services.at_once:
            if (following := next(likely, None)) is None:
                return
            key = following[1], told(options)
            if key not in running:
                running[key] = submit(_TRY, following, options)

    def ahead(asked: Asked, options: BuildOptions, likely: Iterator[Asked]) -> TryOutcome | None:
        if not reading:
            reading.extend(submit(_READ, asked, options) for _ in range(services.at_once))
            return None
        begin(likely, options)
        future = running.get((asked[1], told(options)))
        if future is None:
            return None
        while not future.done():
            wait([other for other in running.values() if not other.done()], return_when=FIRST_COMPLETED)
            begin(likely, options)
        return None if future.exception() else TryOutcome.from_json(future.result())

    return ahead


def _limits_decide(platform: Platform, options: BuildOptions) -> bool:
    """True where what a try comes to depends on the bytes that memories may give."""
    moves = options.memories == "all" and len(options.limits_bytes(platform)) > 1
    return moves or len(options.processors_of(platform)) > 1
