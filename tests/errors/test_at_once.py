"""Work at once: as much as was asked for, its programs too, and never a wait for each other."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from tvm_ext.core.processes.at_once import at_once, turns


class Programs:
    """Counts programs that run at once. meeting: each waits there for as many as shall meet."""

    def __init__(self, meeting: int) -> None:
        self.running = self.most = 0
        self._lock, self._meeting = threading.Lock(), threading.Barrier(meeting)

    def run(self) -> None:
        with turns():
            with self._lock:
                self.running += 1
                self.most = max(self.most, self.running)
            self._meeting.wait(timeout=30)
            with self._lock:
                self.running -= 1


@pytest.mark.parametrize("jobs", [1, 2, 3])
def test_as_many_programs_as_jobs(jobs: int) -> None:
    programs = Programs(jobs)
    with at_once(jobs) as threads:
        futures: list[Future[None]] = [threads.submit(programs.run) for _ in range(6)]
        for future in futures:
            future.result()
    assert programs.most == jobs


def test_programs_elsewhere_do_not_wait() -> None:
    programs = Programs(4)
    with at_once(1):
        pass
    threads = [threading.Thread(target=programs.run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert programs.most == 4


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_error_is_that_of_the_work(jobs: int) -> None:
    def failing() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError), at_once(jobs) as threads:
        threads.submit(failing).result()
