"""Check the lists of a round; shares no code with the module that writes them.

Every event of every list is a node of a graph: a list orders its own events, and a signal orders two lists. A run of a
model that several processors share begins before each of its parts ends, and ends after all of them. The check follows
from reachability in this graph alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from codegen_c.program.parallel import Await, Notify, RunStep
from codegen_c.program.rounds import Round

Event = tuple[int, int]
"""A list, and the position of an entry in it."""


def round_faults(one: Round, runs_on: Mapping[str, tuple[str, ...]]) -> list[str]:
    """Return a sentence for each fault of a round: a step too few, a wait without an end, or an order that is missing.

    runs_on: the processors that should run each model, the one that calls it first.
    """
    faults = [*_wrong_steps(one, runs_on), *_wrong_signals(one)]
    return faults or _wrong_order(one)


def _wrong_steps(one: Round, runs_on: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    placed = [
        (step.kind, step.name, one.processors[number])
        for number, entries in enumerate(one.lists)
        for entry in entries
        if isinstance(entry, RunStep)
        for step in [one.steps[entry.index]]
    ]
    wanted = [
        ("run" if core == runs_on[name][0] else "part", name, core) for name in one.models for core in runs_on[name]
    ]
    wanted += [("link", link.name, runs_on[link.source][0]) for link in one.links]
    for kind, name, core in dict.fromkeys([*placed, *wanted]):
        counts = placed.count((kind, name, core)), wanted.count((kind, name, core))
        if counts[0] != counts[1]:
            yield f"the {kind} of {name} is {counts[0]} times in the list of {core}, not {counts[1]} times"


def _wrong_signals(one: Round) -> Iterator[str]:
    """Yield a sentence for each channel whose signals are not awaited in the order in which they are sent."""
    for source in range(len(one.lists)):
        for target in range(len(one.lists)):
            sent = [e.signal for e in one.lists[source] if isinstance(e, Notify) and e.target == target]
            awaited = [e.signal for e in one.lists[target] if isinstance(e, Await) and e.source == source]
            if sent != awaited:
                names = one.processors[source], one.processors[target]
                yield f"signals from {names[0]} to {names[1]} are sent as {sent} and awaited as {awaited}"
    for number, entries in enumerate(one.lists[1:], start=1):
        if not (isinstance(entries[0], Await) and entries[0].source == 0):
            yield f"the list of {one.processors[number]} does not begin with the command of {one.processors[0]}"
        if not (isinstance(entries[-1], Notify) and entries[-1].target == 0):
            yield f"the list of {one.processors[number]} does not end with a signal to {one.processors[0]}"


def _wrong_order(one: Round) -> list[str]:
    events = {(number, place): entry for number, entries in enumerate(one.lists) for place, entry in enumerate(entries)}
    position = {
        (one.steps[entry.index].kind, one.steps[entry.index].name, number): (number, place)
        for (number, place), entry in events.items()
        if isinstance(entry, RunStep)
    }
    runs = {name: at for (kind, name, _), at in position.items() if kind == "run"}
    links = {name: at for (kind, name, _), at in position.items() if kind == "link"}
    follows: dict[Event, set[Event]] = {event: set() for event in events}
    for number, entries in enumerate(one.lists):
        for place, later in pairwise(range(len(entries))):
            follows[number, place].add((number, later))
    awaits = {entry.signal: event for event, entry in events.items() if isinstance(entry, Await)}
    for event, entry in events.items():
        if isinstance(entry, Notify):
            follows[event].add(awaits[entry.signal])
    waits = {event: set(later) for event, later in follows.items()}
    for (kind, name, _), (number, place) in position.items():
        if kind == "part":
            # The run waits for what is ahead of the part in its list, and the part for what is ahead of the run.
            home, at = runs[name]
            waits[number, place - 1].add((home, at))
            if at:
                waits[home, at - 1].add((number, place))
    stuck = _in_circles(waits)
    if stuck:
        return [f"{one.processors[number]} waits forever at entry {place}" for number, place in sorted(stuck)]
    order = {name: index for index, name in enumerate(one.models)}
    faults: list[str] = []
    for link in one.links:
        at = links[link.name]
        same_round = order[link.source] < order[link.target]
        pairs = [(runs[link.source], at, f"{link.name} may copy before {link.source} has run")]
        if same_round:
            pairs.append((at, runs[link.target], f"{link.target} may run before {link.name} has copied"))
        else:
            pairs.append((runs[link.target], at, f"{link.name} may copy before {link.target} has read its input"))
        faults += [fault for first, second, fault in pairs if second not in _reached(follows, first)]
    return faults


def _reached(follows: Mapping[Event, set[Event]], first: Event) -> set[Event]:
    """Return the events that surely come after an event."""
    found: set[Event] = set()
    ahead = [first]
    while ahead:
        for later in follows[ahead.pop()]:
            if later not in found:
                found.add(later)
                ahead.append(later)
    return found


def _in_circles(follows: Mapping[Event, set[Event]]) -> set[Event]:
    """Return the events that can never happen, because they wait for each other."""
    waiting = dict.fromkeys(follows, 0)
    for later in follows.values():
        for event in later:
            waiting[event] += 1
    ready = [event for event, count in waiting.items() if count == 0]
    while ready:
        event = ready.pop()
        del waiting[event]
        for later in follows[event]:
            waiting[later] -= 1
            if waiting[later] == 0:
                ready.append(later)
    return {*waiting}
