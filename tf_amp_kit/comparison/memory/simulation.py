"""Running steps on several threads, without computing: when does which buffer live?

A buffer lives from the start of the step that makes it to the end of the last one that
reads it. A step may take over the buffer of something that it reads, as TensorFlow's
elementwise kernels do, if nobody else reads it any more and the sizes are equal. A step
starts as soon as all that it waits for is there and a thread is idle; which one goes first
is what TensorFlow's executor does. Knows nothing of graphs.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tf_amp_kit.comparison.memory.allocator import Allocator, Chunk
from tf_amp_kit.comparison.memory.threads import Ready

__all__ = ["Peak", "Step", "find_peak", "held_bytes"]

# How long steps take differs from run to run, and so does their order. Six runs are
# enough for a process to have held what it ever holds, within a few percent.
_NUM_RUNS: Final = 6
_SEED: Final = 0

# TensorFlow hands what took 8000 cycles or more to its threads.
_SMALL: Final = 2**14


@dataclass(frozen=True)
class Step:
    """What one operation does to memory.

    Attributes:
        name: What to call it.
        waits_for: Positions of the steps that have to be over before.
        reads: Keys of the buffers that it reads.
        makes: Sizes in bytes by key of the buffers that it makes.
        may_take_over: Those of `reads` whose memory an output may use.
        workspace_bytes: What it takes only while it runs.
        lends: The key of a variable by the key that its buffer is read by from now on.
        updates: The key of the variable that it writes, if any. While somebody still has
            the variable's buffer to read, TensorFlow writes to a new one.
        hands_over: The key of the buffer that becomes the variable's, if nobody else
            reads it.
    """

    name: str
    waits_for: tuple[int, ...] = ()
    reads: tuple[int, ...] = ()
    makes: dict[int, int] = field(default_factory=dict)
    may_take_over: tuple[int, ...] = ()
    workspace_bytes: int = 0
    lends: dict[int, int] = field(default_factory=dict)
    updates: int | None = None
    hands_over: int | None = None

    @property
    def is_small(self) -> bool:
        """Whether it is over at once, so that a thread does it itself before all else."""
        return self.updates is None and sum(self.makes.values()) < _SMALL


@dataclass(frozen=True)
class Peak:
    """The moment when most memory is taken.

    Attributes:
        size_bytes: How much is taken then.
        position: The position of the step that starts; -1 if there is none.
        live: Sizes by key of the buffers that are alive then, workspaces left out.
    """

    size_bytes: int
    position: int
    live: dict[int, int] = field(repr=False)


class _Place(NamedTuple):
    """Where a variable is; a chunk may be larger than what it is for."""

    chunk: Chunk
    size_bytes: int


class _Run:
    """One run through all steps; `peak` tells the most that was alive.

    Args:
        steps: The steps.
        allocator: Where the buffers are laid out.
        jitter: Draws how long steps take.
        variables: The places of variables by key, which updates may change.
    """

    def __init__(
        self,
        steps: Sequence[Step],
        allocator: Allocator,
        jitter: random.Random,
        variables: dict[int, _Place],
    ) -> None:
        self._steps = steps
        self._allocator = allocator
        self._jitter = jitter
        self._variables = variables
        self._lent: dict[int, _Place] = {}
        self._num_borrowers: Counter[Chunk] = Counter()
        self._outdated: set[Chunk] = set()
        self._reads_left = Counter(key for step in steps for key in set(step.reads))
        self._live: dict[int, int] = {}
        self._chunks: dict[int, Chunk] = {}
        self._workspaces: dict[int, Chunk] = {}
        self._total = 0
        self.peak = Peak(0, -1, {})

    def go(self, threads: int) -> None:
        """Runs all steps, so many at once."""
        missing = [len(set(step.waits_for)) for step in self._steps]
        after: dict[int, list[int]] = {}
        for number, step in enumerate(self._steps):
            for before in set(step.waits_for):
                after.setdefault(before, []).append(number)
        ready = Ready(threads)
        for number, count in enumerate(missing):
            if not count:
                ready.add(number, 0, is_small=self._steps[number].is_small)
        idle = list(range(threads))
        running: list[tuple[float, int, int]] = []
        now = 0.0
        while True:
            for thread in sorted(idle):
                taken = ready.next_for(thread)
                if taken is not None:
                    idle.remove(thread)
                    heapq.heappush(running, (now + self._start(taken), taken, thread))
            if not running:
                return
            now, number, thread = heapq.heappop(running)
            idle.append(thread)
            self._finish(self._steps[number], number)
            for follower in after.get(number, ()):
                missing[follower] -= 1
                if not missing[follower]:
                    ready.add(follower, thread, is_small=self._steps[follower].is_small)

    def _start(self, number: int) -> float:
        """Makes a step's buffers, and returns how long it takes."""
        step = self._steps[number]
        # As long as memory traffic takes, and what else the machine does.
        moved = sum(step.makes.values()) + sum(map(self._size_of, step.reads))
        for key, size in step.makes.items():
            old = next((one for one in step.may_take_over if self._is_over(one, size)), None)
            if old is None:
                self._chunks[key] = self._allocator.allocate(size)
                self._total += size
            else:
                self._chunks[key] = self._chunks.pop(old)
                del self._live[old]
            self._live[key] = size
        if step.workspace_bytes:
            self._workspaces[number] = self._allocator.allocate(step.workspace_bytes)
            self._total += step.workspace_bytes
        for key, variable in step.lends.items():
            self._lend(key, variable)
        if step.updates is not None:
            self._update(step.updates, step.hands_over)
        if self._total > self.peak.size_bytes:
            self.peak = Peak(self._total, number, dict(self._live))
        return (1 + moved) * self._jitter.uniform(0.5, 1.5)

    def _size_of(self, key: int) -> int:
        return self._lent[key].size_bytes if key in self._lent else self._live.get(key, 0)

    def _lend(self, key: int, variable: int) -> None:
        if variable in self._variables and self._reads_left[key]:
            self._lent[key] = self._variables[variable]
            self._num_borrowers[self._lent[key].chunk] += 1

    def _update(self, variable: int, given: int | None) -> None:
        old = self._variables.get(variable)
        if old is None:
            return
        if given is not None and self._is_over(given, old.size_bytes):
            self._variables[variable] = old._replace(chunk=self._chunks.pop(given))
            self._total -= self._live.pop(given)
        elif self._num_borrowers[old.chunk]:
            self._variables[variable] = old._replace(chunk=self._allocator.allocate(old.size_bytes))
        else:
            return
        if self._num_borrowers[old.chunk]:
            self._outdated.add(old.chunk)
            self._total += old.size_bytes
        else:
            self._allocator.free(old.chunk)

    def _give_back(self, key: int) -> None:
        chunk, size = self._lent.pop(key)
        self._num_borrowers[chunk] -= 1
        if chunk in self._outdated and not self._num_borrowers[chunk]:
            self._outdated.remove(chunk)
            self._total -= size
            self._allocator.free(chunk)

    def _is_over(self, key: int, size: int) -> bool:
        """Tells whether only the step that starts reads a buffer, of this size, any more."""
        return self._reads_left[key] == 1 and self._live.get(key) == size

    def _finish(self, step: Step, number: int) -> None:
        if number in self._workspaces:
            self._allocator.free(self._workspaces.pop(number))
            self._total -= step.workspace_bytes
        for key in set(step.reads):
            self._reads_left[key] -= 1
            if not self._reads_left[key] and key in self._lent:
                self._give_back(key)
        for key in {*step.reads, *step.makes}:
            if not self._reads_left[key] and key in self._live:
                self._total -= self._live.pop(key)
                self._allocator.free(self._chunks.pop(key))


def find_peak(steps: Sequence[Step]) -> Peak:
    """Runs steps one at a time and finds when most memory is taken.

    What a step reads and no step makes counts nothing: weights and inputs are there all
    the time, and are known without this.

    Args:
        steps: The steps.

    Returns:
        The first moment of the largest sum.

    Example:

    >>> steps = [Step("a", makes={0: 4}), Step("b", (0,), (0,), {1: 2}), Step("c", (1,), (1,))]
    >>> find_peak(steps).size_bytes, find_peak(steps).position
    (6, 1)
    """
    run = _Run(steps, Allocator(), random.Random(_SEED), {})
    run.go(threads=1)
    return run.peak


def held_bytes(
    steps: Sequence[Step],
    kept: Iterable[int],
    variables: Mapping[int, int],
    *,
    threads: int,
    batch: Sequence[int] = (),
) -> int:
    """Tells what a process holds after it ran steps a few times.

    Args:
        steps: The steps.
        kept: The sizes in bytes of buffers that are there before, and stay.
        variables: Sizes by key of what is there before, too, and is read and updated.
        threads: How many steps run at once.
        batch: The sizes of what each run is given: made before it, gone after it.

    Returns:
        Bytes, those of `kept`, `variables` and `batch` included.

    Example:

    >>> held_bytes([Step("a", makes={0: 2**20})], [2**20], {}, threads=1) == 2**21
    True
    """
    allocator, jitter = Allocator(), random.Random(_SEED)
    places = {key: _Place(allocator.allocate(size), size) for key, size in variables.items()}
    for size in kept:
        allocator.allocate(size)
    for _ in range(_NUM_RUNS):
        given = [allocator.allocate(size) for size in batch]
        _Run(steps, allocator, jitter, places).go(threads)
        for chunk in given:
            allocator.free(chunk)
    return allocator.held_bytes
