"""Tasks that stay together: those that the same processors can run, independent branches, and what fits fast memory.

Each grouping joins tasks step by step. It never joins tasks that no processor can all run, nor makes groups read each
other in a circle. It begins with sets of tasks that have to be together, and what lies on the ways among them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from relay_passes.solvers.processors.groups import Groups, ordered, processors_of
from relay_passes.solvers.processors.problem import ProcessorProblem

Together = Collection[frozenset[int]]


def group_kept(problem: ProcessorProblem, together: Together) -> Groups:
    """No groups but of tasks that have to be together."""
    return _Joining(problem, together).groups()


def group_by_support(problem: ProcessorProblem, together: Together = ()) -> Groups:
    """Connected tasks that the same set of processors can run, as many together as can be."""
    able = [processors_of(problem, (task,)) for task in range(len(problem.tasks))]
    joining = _Joining(problem, together)
    for task, makers in enumerate(problem.makers):
        for maker in makers:
            if able[maker] == able[task]:
                joining.join((maker, task))
    return joining.groups()


def group_by_branches(problem: ProcessorProblem, together: Together = ()) -> Groups:
    """Each branch between a fork and the task where all its ways meet again, whole; other tasks alone.

    A fork is a task with several readers, or the begin of all; ways that never meet again end with the graph. Of
    branches within branches the outermost are taken.
    """
    joining, taken = _Joining(problem, together), set[int]()
    for branches in _forks(problem):
        if len(branches) > 1:
            for branch in branches:
                if not taken & branch and joining.join(branch):
                    taken |= branch
    return joining.groups()


def group_by_volume(problem: ProcessorProblem, most_bytes: int, together: Together = ()) -> Groups:
    """Consecutive tasks whose weights and values together take no more than some bytes, fast memory's size say."""
    joining = _Joining(problem, together)
    for task, makers in enumerate(problem.makers):
        by_size = sorted(makers, key=lambda maker: (-_bytes_between(problem, maker, task), maker))
        for maker in by_size:
            members = {*joining.members(maker), *joining.members(task)}
            if volume_bytes(problem, members) <= most_bytes:
                joining.join((maker, task))
    return joining.groups()


def volume_bytes(problem: ProcessorProblem, tasks: Iterable[int]) -> int:
    """Bytes of the weights of tasks, and of the values that they read or write, each once."""
    members = frozenset(tasks)
    values = (v.size_bytes for v in problem.values if v.maker in members or members.intersection(v.readers))
    return sum(problem.tasks[task].weights_bytes for task in members) + sum(values)


def _bytes_between(problem: ProcessorProblem, maker: int, reader: int) -> int:
    return sum(value.size_bytes for value in problem.values if value.maker == maker and reader in value.readers)


class _Joining:
    """Owner of each task: the least task of its group."""

    def __init__(self, problem: ProcessorProblem, together: Together = ()) -> None:
        self.problem, self.owner = problem, list(range(len(problem.tasks)))
        for tasks in together:
            self.join(self._between(tasks))

    def members(self, task: int) -> list[int]:
        return [other for other, own in enumerate(self.owner) if own == self.owner[task]]

    def _between(self, tasks: Collection[int]) -> list[int]:
        """Tasks of the groups of some tasks, and of all groups on ways from one of these to another."""
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
        """Makes one group of the groups of some tasks, if one processor can run it and groups keep an order."""
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
    """Nodes to which edges lead from some of them, these included."""
    found, waiting = set[int](), [*begins]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += edges.get(node, ())
    return found


def _forks(problem: ProcessorProblem) -> Iterator[list[set[int]]]:
    """Branches of every fork, the begin of all first: connected tasks between it and where its ways meet again."""
    count = len(problem.tasks)
    meets = _meeting_places(problem)
    begins = [task for task, makers in enumerate(problem.makers) if not makers]
    for heads in (begins, *problem.followers):
        if len(heads) > 1:
            meet = _common(meets, heads, count)
            yield _branches(problem, heads, meet)


def _meeting_places(problem: ProcessorProblem) -> list[int]:
    """For each task, the first one behind it that all ways to the end go through; their number, where it is the end."""
    count = len(problem.tasks)
    meets = [count] * count
    for task in reversed(range(count)):
        if problem.followers[task]:
            meets[task] = _common(meets, problem.followers[task], count)
    return meets


def _common(meets: list[int], tasks: Iterable[int], count: int) -> int:
    """The first place that all ways from some tasks go through, the tasks themselves included."""
    places = set(tasks)
    while len(places) > 1:
        first = min(places)
        places.remove(first)
        places.add(meets[first] if first < count else count)
    return places.pop()


def _branches(problem: ProcessorProblem, heads: Iterable[int], meet: int) -> list[set[int]]:
    """Connected components of the tasks from some heads up to, not with, the place where they meet."""
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
