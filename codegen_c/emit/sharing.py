"""Objects that models of a bundle share: overlaid arenas, equal functions and constants, and their C names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from codegen_c.arena.memory_plan import MemoryPlan
from codegen_c.emit.functions import function_names
from codegen_c.kernels.contract import CFunction
from codegen_c.program.interface import Interface
from codegen_c.program.program import Program
from codegen_c.program.steps import KernelCall
from codegen_c.program.tensors import Constant
from tvm_ext.core.names import unique
from tvm_ext.core.options import CompileFor
from tvm_ext.core.platform import LINKED_MEMORY, STATE_MEMORY


@dataclass(frozen=True, kw_only=True, eq=False)
class Sharing:
    """C names of the objects that a model shares with others of its bundle. A model compiled alone shares none.

    bundle: the prefix of the bundle's names. arenas: memory -> the arena's object; arenas of states and of instances
    that callers hold are never shared. constants: name in the program -> symbol. functions: function -> symbol.
    """

    bundle: str = ""
    arenas: Mapping[str, str] = field(default_factory=dict[str, str])
    constants: Mapping[str, str] = field(default_factory=dict[str, str])
    functions: Mapping[CFunction, str] = field(default_factory=dict[CFunction, str])


ALONE = Sharing()


@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """A model of a bundle, with the facts that decide which objects it can share.

    processors: those that run the model, the caller first; empty for the platform's first processor alone. compiled_as:
    the processor for whose code the model's functions are compiled; empty for the platform's first.
    """

    program: Program
    plan: MemoryPlan
    interface: Interface
    optimize: CompileFor
    processors: tuple[str, ...] = ()
    compiled_as: str = ""

    @property
    def model(self) -> str:
        return self.interface.model

    @property
    def other_cores(self) -> tuple[str, ...]:
        """The processors beside the platform's first that run the model or parts of it."""
        return self.processors[1:] or self.processors

    @property
    def overlaid(self) -> dict[str, int]:
        """Memory -> bytes of the arenas that the bundle overlays."""
        if self.interface.holds_context:
            return {}
        apart = (STATE_MEMORY, LINKED_MEMORY)
        return {a.memory: a.num_bytes for a in self.plan.arenas if a.num_bytes and a.memory not in apart}


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedFunction:
    """A function that several models call, which are compiled with the same flags. calls: of all models.

    compiled_as: as of its models.
    """

    symbol: str
    function: CFunction
    optimize: CompileFor
    compiled_as: str
    models: tuple[str, ...]
    calls: tuple[tuple[str, KernelCall], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class SharedConstant:
    """A constant that is stored once for several layers of several models. users: (model, its name there)."""

    symbol: str
    constant: Constant
    users: tuple[tuple[str, str], ...]

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(model for model, _ in self.users))

    @property
    def saved_bytes(self) -> int:
        return self.constant.data.nbytes * (len(self.users) - 1)


def shared_functions(bundle: str, members: Sequence[Member]) -> list[SharedFunction]:
    """Return the functions of equal text in several models with the same compiler flags, in order of first use."""
    users: dict[tuple[CFunction, CompileFor, str], list[tuple[str, KernelCall]]] = {}
    names: dict[tuple[CFunction, CompileFor, str], str] = {}
    for member in members:
        if member.interface.servers:
            continue  # its functions are in files of several processors, which may be compiled differently
        own = function_names(member.program)
        for call in member.program.kernel_calls():
            if call.name in own:
                key = (call.implementation.function, member.optimize, member.compiled_as)
                users.setdefault(key, []).append((member.model, call))
                names.setdefault(key, call.computes or own[call.name])
    taken = {"arenas", "selftest", "kernels", "weights", "memory", "links", "round", "run", "processors"}
    found: list[SharedFunction] = []
    for (function, optimize, compiled_as), calls in users.items():
        models = tuple(dict.fromkeys(model for model, _ in calls))
        if len(models) > 1:
            symbol = f"{bundle}_{unique(names[function, optimize, compiled_as], taken)}"
            found.append(
                SharedFunction(
                    symbol=symbol, function=function, optimize=optimize, compiled_as=compiled_as, models=models,
                    calls=tuple(calls),
                )
            )  # fmt: skip
    return found


def shared_constants(bundle: str, members: Sequence[Member]) -> list[SharedConstant]:
    """Return the constants of equal content hash, type and memory in several models, in order of first use."""
    users: dict[tuple[str, str, str, tuple[tuple[str, str], ...]], list[tuple[str, Constant]]] = {}
    for member in members:
        for constant in member.program.constant_objects:
            digest = hashlib.sha256(constant.data.tobytes()).hexdigest()
            inside = tuple((one.member, one.note) for one in constant.members)
            key = (str(constant.data.dtype), digest, constant.memory, inside)
            users.setdefault(key, []).append((member.model, constant))
    taken: set[str] = set()
    found: list[SharedConstant] = []
    for (_, digest, *_), same in users.items():
        if len({model for model, _ in same}) > 1:
            symbol = f"{bundle}_weights_{unique(digest[:8], taken)}"
            named = tuple((model, constant.name) for model, constant in same)
            found.append(SharedConstant(symbol=symbol, constant=same[0][1], users=named))
    return found


def sharing_of(
    bundle: str,
    member: Member,
    functions: Sequence[SharedFunction],
    constants: Sequence[SharedConstant],
    states_in: str = "",
) -> Sharing:
    """Return one model's names of shared objects. states_in: group of variants whose states share memory."""
    states = {STATE_MEMORY: f"{states_in}_{STATE_MEMORY}.{member.model}"} if states_in else dict[str, str]()
    return Sharing(
        bundle=bundle,
        arenas={memory: f"{bundle}_{memory}.{member.model}" for memory in member.overlaid} | states,
        constants={name: one.symbol for one in constants for model, name in one.users if model == member.model},
        functions={
            one.function: one.symbol
            for one in functions
            if (one.optimize, one.compiled_as) == (member.optimize, member.compiled_as) and member.model in one.models
        },
    )
