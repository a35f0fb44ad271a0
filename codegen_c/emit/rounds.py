"""`<bundle>_round.*`: the models of a bundle on several processors, alone and in rounds.

The first processor commands the others. A command is a word in shared memory that the first processor writes before a
signal, and clears after the signal that answers it; 0 means that the processor is idle. Every other processor calls
`<bundle>_serve_<processor>` in an endless loop: it waits for a command, carries it out, and answers.

`<bundle>_processors.*` has the variables that the processors share. `<bundle>_round_<processor>.c` has the functions of
processors that run other code than the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from codegen_c.c_text.text import block, comment_block
from codegen_c.emit.banner import Origin, banner
from codegen_c.emit.layer_files import compiled_as
from codegen_c.emit.links import ModelLink, copied, run_symbol
from codegen_c.emit.lists import awaited, channel_name, sent
from codegen_c.emit.memory import define_section, section_macro
from codegen_c.emit.sharing import Member
from codegen_c.emit.signals import SIGNAL_HEADER, polled
from codegen_c.program.parallel import Await, Entry, Notify, RunStep
from codegen_c.program.rounds import Round
from codegen_c.targets.registry import instruction_set_of, runtime_text
from tvm_ext.core.platform import Platform

_ROUND = 1
"""Command that starts a round. The commands of single models follow."""


def emit_rounds(
    bundle: str,
    members: Sequence[Member],
    links: Sequence[ModelLink],
    one: Round | None,
    origin: Origin,
    platform: Platform,
) -> dict[str, str]:
    """Return the texts of all files by name; no files for a bundle without a round on the first processor alone."""
    files = _Files(bundle=bundle, members=tuple(members), links=tuple(links), round=one, platform=platform)
    if one is None and not files.cores:
        return {}
    texts = {
        f"{bundle}_round.h": files.header(origin),
        f"{bundle}_processors.h": files.shared_header(origin),
        f"{bundle}_processors.c": files.shared(origin),
        f"{bundle}_round.c": files.source(origin, ""),
    }
    if files.cores:
        texts[SIGNAL_HEADER] = runtime_text(SIGNAL_HEADER, instruction_set_of(platform.processor))
    others = dict.fromkeys(compiled_as(platform, core) for core in files.cores)
    return texts | {f"{bundle}_round_{name}.c": files.source(origin, name) for name in others if name}


def serve_symbol(bundle: str, processor: str) -> str:
    """Return the name of the function that a processor beside the first calls in an endless loop."""
    return f"{bundle}_serve_{processor}"


def starts_apart(member: Member, one: Round | None) -> bool:
    """Return True if the first processor can start a model and go on while another processor runs it."""
    return len(member.processors) == 1 and (one is None or member.model not in one.models)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Files:
    bundle: str
    members: tuple[Member, ...]
    links: tuple[ModelLink, ...]
    round: Round | None
    platform: Platform

    @cached_property
    def first(self) -> str:
        return self.platform.processor.name

    @cached_property
    def cores(self) -> tuple[str, ...]:
        """The processors beside the first that run models or parts of them, in the platform's order."""
        used = {name for member in self.members for name in member.other_cores}
        return tuple(core.name for core in self.platform.processors if core.name in used)

    @cached_property
    def elsewhere(self) -> list[Member]:
        """The models that other processors run or share."""
        return [member for member in self.members if member.processors]

    def in_round(self, model: str) -> bool:
        return self.round is not None and model in self.round.models

    def command(self, member: Member) -> int:
        return _ROUND + 1 + self.members.index(member)

    def links_of(self, model: str) -> list[ModelLink]:
        return [link for link in self.links if link.source.model == model]

    def status(self, model: str) -> str:
        return f"{self.bundle}_statuses.{model}"

    def header(self, origin: Origin) -> str:
        """Return the public header."""
        name, guard = self.bundle, f"{self.bundle.upper()}_ROUND_H"
        parts: list[str] = []
        if self.round:
            parts.append(_round_api(name, self.round))
            parts += [
                f"/* Status of {model} in the last round; its outputs are valid if it is 0. */\n"
                f"{self.member(model).interface.status_type} {name}_status_of_{model}(void);\n"
                for model in self.round.models
            ]
        parts += [self._alone_api(member) for member in self.elsewhere]
        parts += [
            f"/* {core} calls this in an endless loop. It carries out a command of {self.first}, and returns. */\n"
            f"void {serve_symbol(name, core)}(void);\n"
            for core in self.cores
        ]
        includes = [f'#include "{member.model}.h"' for member in self.members]
        return "\n".join(
            [
                banner(origin, f"{name}: models on {' and '.join([self.first, *self.cores])}."),
                f"#ifndef {guard}\n#define {guard}\n\n#include <stdint.h>\n",
                *includes,
                '\n#ifdef __cplusplus\nextern "C" {\n#endif\n',
                *parts,
                "#ifdef __cplusplus\n}\n#endif\n\n#endif\n",
            ]
        )

    def member(self, model: str) -> Member:
        return next(member for member in self.members if member.model == model)

    def _alone_api(self, member: Member) -> str:
        """Return the declarations of the functions that run one model outside of a round."""
        name, model, kind = self.bundle, member.model, member.interface.status_type
        cores = " and ".join(member.processors)
        notes = [f"Runs {model} on {cores} and waits until it has ended. {self.first} calls this, never {model}_run()."]
        lines = [comment_block(notes), f"{kind} {run_symbol(name, model)}(void);\n"]
        if starts_apart(member, self.round):
            core = member.processors[0]
            lines += [
                comment_block(
                    [
                        f"Starts {model} on {core} and returns at once. If {core} still runs a model, it waits. "
                        f"Write the inputs of {model} before, and leave them until {name}_finish_{model}()."
                    ]
                ),
                f"void {name}_start_{model}(void);\n",
                f"/* 1 if {core} is still carrying out what was started there, else 0. */",
                f"int32_t {name}_is_running_{model}(void);\n",
                comment_block([f"Waits until {model} has ended and returns its status. Read its outputs then."]),
                f"{kind} {name}_finish_{model}(void);\n",
            ]
        return "\n".join(lines)

    @cached_property
    def channels(self) -> list[tuple[str, str]]:
        found = [pair for core in self.cores for pair in ((self.first, core), (core, self.first))]
        if self.round:
            names = self.round.processors
            found += [
                (names[number], names[entry.target])
                for number, entries in enumerate(self.round.lists)
                for entry in entries
                if isinstance(entry, Notify)
            ]
        return list(dict.fromkeys(found))

    def shared_header(self, origin: Origin) -> str:
        """Return the header of the variables and functions that the files of the bundle share."""
        name, guard = self.bundle, f"{self.bundle.upper()}_PROCESSORS_H"
        line = "_Alignas(TVM_EXT_SIGNAL_LINE_BYTES) " if self.cores else ""
        statuses = [f"{line}int32_t {member.model};" for member in self._with_status()]
        parts = [f"extern tvm_ext_channel {channel_name(name, *pair)};" for pair in self.channels]
        if self.cores:
            words = block([f"{line}uint32_t {core};" for core in self.cores])
            parts += [
                f"\n/* What each processor has to do, written by {self.first}; 0 if the processor is idle. */",
                f"struct {name}_commands {{\n{words}\n}};\nextern struct {name}_commands {name}_commands;\n",
            ]
        if statuses:
            parts += [
                "/* Status of the last run of each model. The processor that runs the model writes it. */",
                f"struct {name}_statuses {{\n{block(statuses)}\n}};\nextern struct {name}_statuses {name}_statuses;\n",
            ]
        parts += [f"/* {link.description}. */\nvoid {link.symbol}(void);\n" for link in self.links]
        parts += [
            f"/* Returns when {core} is idle. Only {self.first} calls this. */\nvoid {name}_wait_for_{core}(void);\n"
            for core in self.cores
        ]
        includes = [f'#include "{SIGNAL_HEADER}"\n'] if self.cores else []
        return "\n".join(
            [
                banner(origin, f"{name}: what its processors share."),
                f"#ifndef {guard}\n#define {guard}\n\n#include <stdint.h>\n",
                *(polled(self.channels, self.platform) if self.cores else []),
                *includes,
                *parts,
                "#endif\n",
            ]
        )

    def _with_status(self) -> list[Member]:
        return [one for one in self.members if self.in_round(one.model) or one.processors]

    def shared(self, origin: Origin) -> str:
        """Return the file that defines these variables."""
        name, memory = self.bundle, self.platform.memory(self.platform.activations)
        macro = section_macro(name, memory.name)
        variables = [f"{macro} tvm_ext_channel {channel_name(name, *pair)};" for pair in self.channels]
        variables += [f"{macro} struct {name}_commands {name}_commands;"] if self.cores else []
        variables += [f"{macro} struct {name}_statuses {name}_statuses;"] if self._with_status() else []
        head = banner(origin, f"{name}: what its processors share.")
        section = define_section(name, memory, zeroed=True)
        return "\n".join([head, f'#include "{name}_processors.h"\n', section, *variables, ""])

    def source(self, origin: Origin, kind: str) -> str:
        """Return the file with the functions of the processors that run one kind of code; empty for the first's."""
        name = self.bundle
        own = [core for core in self.cores if compiled_as(self.platform, core) == kind]
        functions = [function for core in own for function in self._served(core)]
        if not kind:
            functions += self._of_the_first()
        names = [*([] if kind else [self.first]), *own]
        includes = [f'#include "{name}_round.h"', f'#include "{name}_processors.h"', ""]
        return "\n".join([banner(origin, f"{name}: models on {' and '.join(names)}."), *includes, *functions])

    def _of_the_first(self) -> list[str]:
        """Return the functions that the first processor calls."""
        functions = [self._wait(core) for core in self.cores]
        for member in self.elsewhere:
            functions += self._shared_run(member) if len(member.processors) > 1 else self._started_run(member)
        if self.round:
            functions.append(self._round_run(self.round))
            functions += [
                f"{self.member(model).interface.status_type} {self.bundle}_status_of_{model}(void)\n{{\n"
                f"    return ({self.member(model).interface.status_type}){self.status(model)};\n}}\n"
                for model in self.round.models
            ]
        return functions

    def _wait(self, core: str) -> str:
        """Return the function that waits until a processor is idle, and then copies for the model that ran there."""
        name = self.bundle
        lines = [
            f"const uint32_t command = {name}_commands.{core};",
            "if (command == 0u) {",
            block("return;"),
            "}",
            f"{awaited(self.platform, name, core, self.first)} /* the command is done */",
            f"{name}_commands.{core} = 0u;",
        ]
        for member in self.elsewhere:
            found = self.links_of(member.model)
            if member.processors == (core,) and found and not self.in_round(member.model):
                condition = f"command == {self.command(member)}u && {self.status(member.model)} == 0"
                lines += [f"if ({condition}) {{", block([line for link in found for line in copied(link)]), "}"]
        return f"void {name}_wait_for_{core}(void)\n{{\n{block(lines)}\n}}\n"

    def _commanded(self, core: str, command: int, why: str) -> list[str]:
        name = self.bundle
        return [
            f"{name}_wait_for_{core}();",
            f"{name}_commands.{core} = {command}u;",
            f"{sent(self.platform, name, self.first, core)} /* {why} */",
        ]

    def _started_run(self, member: Member) -> list[str]:
        """Return the functions of a model that another processor runs."""
        name, model, (core,), kind = self.bundle, member.model, member.processors, member.interface.status_type
        apart = starts_apart(member, self.round)
        start = self._commanded(core, self.command(member), f"start {model}")
        finish = [f"{name}_wait_for_{core}();", f"return ({kind}){self.status(model)};"]
        if not apart:
            return [f"{kind} {run_symbol(name, model)}(void)\n{{\n{block([*start, *finish])}\n}}\n"]
        done = f"tvm_ext_has_signal(&{channel_name(name, core, self.first)})"
        running = [f"return {name}_commands.{core} != 0u && {done} == 0 ? 1 : 0;"]
        both = [f"{name}_start_{model}();", f"return {name}_finish_{model}();"]
        return [
            f"void {name}_start_{model}(void)\n{{\n{block(start)}\n}}\n",
            f"int32_t {name}_is_running_{model}(void)\n{{\n{block(running)}\n}}\n",
            f"{kind} {name}_finish_{model}(void)\n{{\n{block(finish)}\n}}\n",
            f"{kind} {run_symbol(name, model)}(void)\n{{\n{block(both)}\n}}\n",
        ]

    def _shared_run(self, member: Member) -> list[str]:
        """Return the function that runs a model whose rows several processors share."""
        name, model, kind = self.bundle, member.model, member.interface.status_type
        lines = [
            line
            for core in member.other_cores
            for line in self._commanded(core, self.command(member), f"a part of {model}")
        ]
        lines += [f"{self.status(model)} = (int32_t){member.interface.run}();"]
        lines += [f"{name}_wait_for_{core}();" for core in member.other_cores]
        if found := self.links_of(model):
            calls = [line for link in found for line in copied(link)]
            lines += [f"if ({self.status(model)} == 0) {{", block(calls), "}"]
        lines.append(f"return ({kind}){self.status(model)};")
        return [f"{kind} {run_symbol(name, model)}(void)\n{{\n{block(lines)}\n}}\n"]

    def _round_run(self, one: Round) -> str:
        """Return the function that runs a round."""
        name, others = self.bundle, one.processors[1:]
        lines = [f"{name}_wait_for_{core}();" for core in others]
        lines += [f"{name}_commands.{core} = {_ROUND}u;" for core in others]
        lines += self._entries(one, 0)
        lines += [f"{name}_commands.{core} = 0u;" for core in others]
        for model in one.models[:-1]:
            lines += [f"if ({self.status(model)} != 0) {{", block(f"return {self.status(model)};"), "}"]
        lines.append(f"return {self.status(one.models[-1])};")
        return f"int32_t {name}_run(void)\n{{\n{block(lines)}\n}}\n"

    def _served(self, core: str) -> list[str]:
        """Return the function of a processor beside the first, after the function of its part of a round."""
        name = self.bundle
        functions: list[str] = []
        cases: list[str] = []
        if self.round and core in self.round.processors:
            number = self.round.processors.index(core)
            lines = self._entries(self.round, number)[1:-1]  # the command and its answer are around all commands
            functions.append(f"static void round_on_{core}(void)\n{{\n{block(lines)}\n}}\n")
            cases += [f"case {_ROUND}u:", block([f"round_on_{core}();", "break;"])]
        for member in self.elsewhere:
            if core not in member.other_cores:
                continue
            lines = [f"{member.interface.serve(core)}();"]
            if len(member.processors) == 1:
                lines = [f"{self.status(member.model)} = (int32_t){member.interface.run}();"]
                if self.in_round(member.model) and (found := self.links_of(member.model)):
                    calls = [f"{link.symbol}();" for link in found]
                    lines += [f"if ({self.status(member.model)} == 0) {{", block(calls), "}"]
            cases += [f"case {self.command(member)}u:", block([*lines, "break;"])]
        body = [
            f"{awaited(self.platform, name, self.first, core)} /* a command */",
            f"switch ({name}_commands.{core}) {{",
            *cases,
            "default:",
            block("break;"),
            "}",
            f"{sent(self.platform, name, core, self.first)} /* the command is done */",
        ]
        return [*functions, f"void {serve_symbol(name, core)}(void)\n{{\n{block(body)}\n}}\n"]

    def _entries(self, one: Round, number: int) -> list[str]:
        """Return the statements of a processor's list."""
        reasons = _reasons(one)
        return [line for entry in one.lists[number] for line in self._entry(one, number, entry, reasons)]

    def _entry(self, one: Round, number: int, entry: Entry, reasons: dict[int, str]) -> list[str]:
        names = one.processors
        if isinstance(entry, Notify):
            calls = sent(self.platform, self.bundle, names[number], names[entry.target])
            return [f"{calls} /* {reasons[entry.signal]} */"]
        if isinstance(entry, Await):
            calls = awaited(self.platform, self.bundle, names[entry.source], names[number])
            return [f"{calls} /* {reasons[entry.signal]} */"]
        step = one.steps[entry.index]
        if step.kind == "link":
            link = next(link for link in self.links if link.symbol == step.name)
            return [f"if ({self.status(link.source.model)} == 0) {{", block(f"{link.symbol}();"), "}"]
        member = self.member(step.name)
        if step.kind == "part":
            return [f"{member.interface.serve(names[number])}();"]
        return [f"{self.status(step.name)} = (int32_t){member.interface.run}();"]


def _round_api(bundle: str, one: Round) -> str:
    """Return the declaration of the function that runs a round."""
    placed = ", ".join(f"{model} on {' and '.join(one.runs_on(model))}" for model in one.models)
    notes = [
        f"Runs a round: {placed}. Write the inputs of all these models before, except linked inputs, and read their "
        "outputs after. Returns 0, or the first status in this order that is not 0; outputs of a model with such a "
        "status are not passed on."
    ]
    return f"{comment_block(notes)}\nint32_t {bundle}_run(void);\n"


def _reasons(one: Round) -> dict[int, str]:
    """Return the event that each signal reports."""
    found: dict[int, str] = {}
    for number, entries in enumerate(one.lists):
        last = "the round begins" if number == 0 else "the list begins"
        for entry in entries:
            if isinstance(entry, RunStep):
                last = f"{one.steps[entry.index].name} is done"
            elif isinstance(entry, Notify):
                found[entry.signal] = last
    return found
