"""Groups of tasks that stay on one processor, and the smaller problem that they form."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush

from relay_passes.solvers.processors.assign import MOST_LABELS, ProcessorAssignment, answer, assign_processors
from relay_passes.solvers.processors.bounds import lower_bound
from relay_passes.solvers.processors.problem import FormPart, ProcessorProblem, Task, TaskForm, TaskValue
from relay_passes.solvers.processors.search import evaluate, started
from tvm_ext.core.objectives import Objective

Groups = tuple[tuple[int, ...], ...]
"""Every task in a group. Tasks of a group ascend, and groups stand in a valid order."""


def processors_of(problem: ProcessorProblem, tasks: Iterable[int]) -> frozenset[int]:
    """Return the processors that can run each of some tasks whole."""
    every = range(len(problem.names))
    return frozenset(p for p in every if all(problem.whole_form(task, p) is not None for task in tasks))


def ordered(problem: ProcessorProblem, owner: Sequence[int]) -> Groups | None:
    """Return groups by the owner of each task in a valid order, or None if groups depend on each other in a cycle."""
    members: dict[int, list[int]] = {}
    edges = {(owner[m], own) for task, own in enumerate(owner) for m in problem.makers[task] if owner[m] != own}
    followers: dict[int, list[int]] = {}
    waiting = dict.fromkeys(owner, 0)
    for task, own in enumerate(owner):
        members.setdefault(own, []).append(task)
    for maker, reader in edges:
        followers.setdefault(maker, []).append(reader)
        waiting[reader] += 1
    ready = sorted(own for own, count in waiting.items() if not count)
    found: list[tuple[int, ...]] = []
    while ready:
        own = heappop(ready)
        found.append(tuple(members.pop(own)))
        for reader in followers.get(own, ()):
            waiting[reader] -= 1
            if not waiting[reader]:
                heappush(ready, reader)
    return None if members else tuple(found)


def contracted(problem: ProcessorProblem, groups: Groups) -> ProcessorProblem:
    """Return the problem with a task for each group.

    A group runs whole, on processors that can run all its tasks. A group of one task keeps all forms of the task.
    """
    owner = {task: number for number, group in enumerate(groups) for task in group}
    values: list[TaskValue] = []
    for value in problem.values:
        maker = owner[value.maker]
        readers = tuple(dict.fromkeys(owner[reader] for reader in value.readers if owner[reader] != maker))
        if readers:
            values.append(TaskValue(maker=maker, readers=readers, size_bytes=value.size_bytes))
    return ProcessorProblem(
        names=problem.names, powers=problem.powers, values=tuple(values), routes=problem.routes,
        tasks=tuple(_contracted_task(problem, group) for group in groups),
    )  # fmt: skip


def _contracted_task(problem: ProcessorProblem, group: Sequence[int]) -> Task:
    if len(group) == 1:
        return problem.tasks[group[0]]
    forms: list[TaskForm] = []
    for processor in sorted(processors_of(problem, group)):
        parts = [_whole_part(problem, task, processor) for task in group]
        time, energy = sum(part.time for part in parts), sum(map(problem.energy_of, parts))
        forms.append(TaskForm(parts=(FormPart(processor=processor, time=time, energy=energy),)))
    return Task(forms=tuple(forms), weights_bytes=sum(problem.tasks[task].weights_bytes for task in group))


def _whole_part(problem: ProcessorProblem, task: int, processor: int) -> FormPart:
    form = problem.whole_form(task, processor)
    assert form is not None
    return problem.tasks[task].forms[form].parts[0]


def expanded(
    problem: ProcessorProblem, groups: Groups, found: ProcessorAssignment
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the forms and the sequence of all tasks, from an assignment of the groups."""
    forms = [0] * len(problem.tasks)
    for group, form, task in zip(groups, found.forms, contracted(problem, groups).tasks, strict=True):
        for member in group:
            whole = problem.whole_form(member, task.forms[form].parts[0].processor)
            forms[member] = form if len(group) == 1 or whole is None else whole
    return tuple(forms), tuple(task for number in found.sequence for task in groups[number])


def assign_groups(
    problem: ProcessorProblem,
    groups: Groups,
    objective: Objective,
    *,
    labels: int = MOST_LABELS,
    use_solver: bool = True,
) -> ProcessorAssignment | None:
    """Return the best assignment found that leaves groups whole, or a single processor where that is better.

    Its bound is a bound of all assignments, also of those that do not leave groups whole.
    """
    found = assign_processors(contracted(problem, groups), objective, labels=labels, use_solver=use_solver)
    if found is None:
        return None
    best = evaluate(problem, objective, *expanded(problem, groups, found))
    for start in started(problem, objective):
        if _keeps_whole(problem, groups, start.forms) and start.value < best.value:
            best = start
    return answer(problem, objective, best, lower_bound(problem, objective))


def _keeps_whole(problem: ProcessorProblem, groups: Groups, forms: Sequence[int]) -> bool:
    places = [{part.processor for part in t.forms[form].parts} for t, form in zip(problem.tasks, forms, strict=True)]
    return all(len(set[int]().union(*(places[task] for task in group))) == 1 for group in groups if len(group) > 1)


Together = Collection[frozenset[int]]


def group_kept(problem: ProcessorProblem, together: Together) -> Groups:
    """Return only the groups of tasks that have to be together."""
    return _Joining(problem, together).groups()


def group_by_support(problem: ProcessorProblem, together: Together = ()) -> Groups:
    """Group connected tasks that the same set of processors can run, as many together as possible."""
    able = [processors_of(problem, (task,)) for task in range(len(problem.tasks))]
    joining = _Joining(problem, together)
    for task, makers in enumerate(problem.makers):
        for maker in makers:
            if able[maker] == able[task]:
                joining.join((maker, task))
    return joining.groups()


def group_by_branches(problem: ProcessorProblem, together: Together = ()) -> Groups:
    """Group each branch between a fork and the task where all its paths meet again. Other tasks stay alone.

    A fork is a task with several readers, or the start of the run. Paths that never meet again end with the graph. Of
    nested branches the outermost are taken.
    """
    joining, taken = _Joining(problem, together), set[int]()
    for branches in _forks(problem):
        if len(branches) > 1:
            for branch in branches:
                if not taken & branch and joining.join(branch):
                    taken |= branch
    return joining.groups()


def group_by_volume(problem: ProcessorProblem, most_bytes: int, together: Together = ()) -> Groups:
    """Group consecutive tasks whose weights and values together take at most `most_bytes`, such as fast memory."""
    joining = _Joining(problem, together)
    for task, makers in enumerate(problem.makers):
        by_size = sorted(makers, key=lambda maker: (-_bytes_between(problem, maker, task), maker))
        for maker in by_size:
            members = {*joining.members(maker), *joining.members(task)}
            if volume_bytes(problem, members) <= most_bytes:
                joining.join((maker, task))
    return joining.groups()


def volume_bytes(problem: ProcessorProblem, tasks: Iterable[int]) -> int:
    """Return the bytes of the weights of tasks, and of the values that they read or write, each counted once."""
    members = frozenset(tasks)
    values = (v.size_bytes for v in problem.values if v.maker in members or members.intersection(v.readers))
    return sum(problem.tasks[task].weights_bytes for task in members) + sum(values)


def _bytes_between(problem: ProcessorProblem, maker: int, reader: int) -> int:
    return sum(value.size_bytes for value in problem.values if value.maker == maker and reader in value.readers)


class _Joining:
    """The owner of each task, which is the first task of its group."""

    def __init__(self, problem: ProcessorProblem, together: Together = ()) -> None:
        self.problem, self.owner = problem, list(range(len(problem.tasks)))
        for tasks in together:
            self.join(self._between(tasks))

    def members(self, task: int) -> list[int]:
        return [other for other, own in enumerate(self.owner) if own == self.owner[task]]

    def _between(self, tasks: Collection[int]) -> list[int]:
        """Return the tasks of the groups of some tasks, and of all groups on paths between them."""
        makers: dict[int, set[int]] = {}
        readers: dict[int, set[int]] = {}
        for task, own in enumerate(self.problem.makers):
            for maker in own:
                makers.setdefault(self.owner[task], set()).add(self.owner[maker])
                readers.setdefault(self.owner[maker], set()).add(self.owner[task])
        owners = {self.owner[task] for task in tasks}
        inside = _reached(owners, makers) & _reached(owners, readers)
        return [task for task, owner in enumerate(self.owner) if owner in inside]

    def join(self, tasks: Iterable[int]) -> bool:
        """Join the groups of some tasks, if a processor can run the result and the groups keep a valid order."""
        owners = {self.owner[task] for task in tasks}
        joined = [min(owners) if own in owners else own for own in self.owner]
        members = [task for task, own in enumerate(joined) if own in owners]
        if len(owners) > 1 and (not processors_of(self.problem, members) or ordered(self.problem, joined) is None):
            return False
        self.owner = joined
        return True

    def groups(self) -> Groups:
        found = ordered(self.problem, self.owner)
        assert found is not None
        return found


def _reached(begins: Iterable[int], edges: Mapping[int, set[int]]) -> set[int]:
    """Return the nodes that edges reach from some nodes, including these."""
    found, waiting = set[int](), [*begins]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += edges.get(node, ())
    return found


def _forks(problem: ProcessorProblem) -> Iterator[list[set[int]]]:
    """Yield the branches of every fork, starting with the start of the run.

    A branch is a connected set of tasks between the fork and the task where its paths meet again.
    """
    count = len(problem.tasks)
    meets = _meeting_places(problem)
    begins = [task for task, makers in enumerate(problem.makers) if not makers]
    for heads in (begins, *problem.followers):
        if len(heads) > 1:
            meet = _common(meets, heads, count)
            yield _branches(problem, heads, meet)


def _meeting_places(problem: ProcessorProblem) -> list[int]:
    """Return for each task the first later task on all its paths to the end.

    Where only the end is on all paths, it is the number of tasks.
    """
    count = len(problem.tasks)
    meets = [count] * count
    for task in reversed(range(count)):
        if problem.followers[task]:
            meets[task] = _common(meets, problem.followers[task], count)
    return meets


def _common(meets: list[int], tasks: Iterable[int], count: int) -> int:
    """Return the first task on all paths from some tasks, which may be one of them."""
    places = set(tasks)
    while len(places) > 1:
        first = min(places)
        places.remove(first)
        places.add(meets[first] if first < count else count)
    return places.pop()


def _branches(problem: ProcessorProblem, heads: Iterable[int], meet: int) -> list[set[int]]:
    """Return the connected components of the tasks from some heads up to, but without, the task where they meet."""
    within, waiting = set[int](), [head for head in heads if head != meet]
    while waiting:
        task = waiting.pop()
        if task not in within:
            within.add(task)
            waiting += [follower for follower in problem.followers[task] if follower != meet]
    found: list[set[int]] = []
    for task in sorted(within):
        beside = {*problem.makers[task], *problem.followers[task]}
        touching = [branch for branch in found if branch & beside]
        found = [branch for branch in found if not branch & beside]
        found.append({task}.union(*touching))
    return found
