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

_JOB = "tvm_ext.try_job.try_job"


def tries_ahead(forms: Forms, platform: Platform, services: OpenServices) -> Ahead:
    """Outcomes of a model's tries by services, which begin the likely ones while they have nothing else to do."""
    running: dict[tuple[Try, str], Future[bytes]] = {}
    board = platform.to_json()

    @cache
    def form(quantize: Quantize) -> str:
        return tvm.ir.save_json(forms(quantize))

    def begun(asked: Asked, options: BuildOptions) -> Future[bytes]:
        method, one = asked
        told = options.to_json() if _limits_decide(platform, options) else replace(options, ram=None).to_json()
        if (one, told) not in running:
            inputs = (json.dumps(asdict(one)), told, board, form(method.options.quantize))
            running[one, told] = services.submit(Job(function=_JOB, inputs=tuple(text.encode() for text in inputs)))
        return running[one, told]

    def ahead(asked: Asked, options: BuildOptions, likely: Iterator[Asked]) -> TryOutcome | None:
        future = begun(asked, options)
        while not future.done():
            busy = [other for other in running.values() if not other.done()]
            if len(busy) < services.at_once and (following := next(likely, None)):
                begun(following, options)
            else:
                wait([future] if len(busy) > services.at_once else busy, return_when=FIRST_COMPLETED)
        return None if future.exception() else TryOutcome.from_json(future.result())

    return ahead


def _limits_decide(platform: Platform, options: BuildOptions) -> bool:
    """True where what a try comes to depends on the bytes that memories may give."""
    moves = options.memories == "all" and len(options.limits_bytes(platform)) > 1
    return moves or len(options.processors_of(platform)) > 1
