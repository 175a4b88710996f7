"""Greedy decoding that drafts as many tokens as pay, by what passes cost and settle while it decodes.

A window of W slots pays when its passes settle more tokens than they cost in single ones (`fastdecode_lib.decoding.window`).
Both depend on model, machine, number format, text and batch. So both are measured on the way: how often the n-th draft is
right, from every pass that had one; and what passes take, by the positions that they compute. The output is greedy
decoding's whatever the widths were.
"""

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from fastdecode_lib.core import Constraints, Source
from fastdecode_lib.decoding.passes import Accepted, Feed
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.drafts.sources import Draft, LateDrafter
from fastdecode_lib.drafts.table import DraftTable

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
GAIN = 1.03
"""Least expected speedup for which anything is drafted."""
LATEST, ENOUGH = 12, 3
"""Passes of like size whose seconds count, and how many are enough to know what one takes."""
SHORTEST, LONGEST = 16, 512
"""Passes between two probes of another width: doubled as long as probes change nothing."""
SPREAD = 8
"""Passes of a sentence among which probes are spread: drafts for its first slots are not like later ones."""
MANY = 8
"""Rows that fill a pass: drafts seldom pay there, and are tried in one of `SHORTEST` passes from the beginning."""
STEADY = 16
"""Passes for which a choice stands."""
MEMORY, FADING = 400, 0.99
"""Drafts after which earlier ones count half; weight of an output's length against the next one's."""


class Times:
    """Seconds of something that is done again and again."""

    def __init__(self) -> None:
        self.latest: deque[float] = deque(maxlen=LATEST)

    def add(self, seconds: float) -> None:
        """Note what it took."""
        self.latest.append(seconds)

    @property
    def known(self) -> bool:
        """Whether it was timed often enough."""
        return len(self.latest) >= ENOUGH

    @property
    def value(self) -> float:
        """What it takes while nothing disturbs it: the lower quartile of the latest times; 0 where there are none."""
        latest = sorted(self.latest)
        return latest[len(latest) // 4] if latest else 0.0


class PassTimes:
    """Seconds of passes by their positions, all rows together."""

    def __init__(self) -> None:
        self.of: defaultdict[int, Times] = defaultdict(Times)

    def add(self, positions: int, seconds: float) -> None:
        """Note what a pass took, among those of like size."""
        self.of[_rounded(positions)].add(seconds)

    def known(self, positions: int) -> bool:
        """Whether passes as small and as large as this one were timed."""
        sizes = [size for size, times in list(self.of.items()) if times.known]
        return bool(sizes) and min(sizes) <= _rounded(positions) and positions <= max(sizes)

    def __call__(self, positions: int) -> float:
        """Seconds of a pass, on a line between sizes that were timed; `known` says whether there are any."""
        sizes, times = zip(
            *sorted((size, times.value) for size, times in list(self.of.items()) if times.known), strict=True
        )
        if positions <= sizes[-1] or len(sizes) == 1:
            return float(np.interp(positions, sizes, times))
        slope = max(0.0, (times[-1] - times[-2]) / (sizes[-1] - sizes[-2]))
        return float(times[-1]) + slope * (positions - sizes[-1])


def _rounded(positions: int) -> int:
    """The next of at most four sizes between powers of two."""
    step = 1 << max(0, positions.bit_length() - 3)
    return -(-positions // step) * step


class Probes:
    """When batches of like size try another width."""

    def __init__(self) -> None:
        self.passes, self.last, self.number, self.period = 0, 0, 0, SHORTEST
        self.pairs, self.before = 0, 0
        """Passes in which a second slot was asked for before anything was known, and the width that paid at the last probe."""

    @property
    def due(self) -> bool:
        """Whether it is time for one."""
        return self.passes - self.last >= self.period

    def width(self, best: int, most: int) -> int:
        """Another width than the best: by turns a single pass, the next smaller and the next larger one."""
        self.period = min(LONGEST, 2 * self.period) if best == self.before else SHORTEST
        self.last, self.number, self.before = self.passes, self.number + 1, best
        place = WIDTHS.index(best)
        others = [width for width in (1, *WIDTHS[max(1, place - 1) : place + 2]) if width != best and width <= most]
        return others[self.number % len(others)] if others else best


class Experience:
    """What drafting brought and cost so far, for one model and text; threads may share it."""

    def __init__(self) -> None:
        self.reached, self.right = np.zeros(WIDTHS[-1] - 1), np.zeros(WIDTHS[-1] - 1)
        """Rows of passes that came to an n-th draft, all before it being right, and those in which it was right too."""
        self.seconds = PassTimes()
        self.drafting, self.preparing = Times(), Times()
        """Seconds to draft a token, and to prepare the drafts of a sentence."""
        self.tokens, self.outputs = 0.0, 0.0
        """Tokens of outputs that ended and their number, earlier ones counting less."""
        self.chosen: dict[int, tuple[int, int]] = {}
        """Widths that pay, by rows, and the pass up to which they stand."""
        self.sizes: defaultdict[int, Probes] = defaultdict(Probes)
        self.passes = 0

    def learn(self, drafted: int, right: int) -> None:
        """Count the drafts of one row of a pass; those asked for that no source had are wrong ones."""
        self.reached[: min(drafted, right + 1)] += 1
        self.right[:right] += 1
        if self.reached[0] > MEMORY:
            self.reached *= 0.5
            self.right *= 0.5

    def ended(self, tokens: int) -> None:
        """Count an output of so many tokens."""
        self.tokens, self.outputs = tokens + FADING * self.tokens, 1 + FADING * self.outputs

    def settled(self, width: int) -> float:
        """Expected number of tokens that a row of a pass settles."""
        tokens, share, chain = 1.0, 0.5, 1.0
        for reached, right in zip(self.reached[: width - 1].tolist(), self.right.tolist(), strict=False):
            share = (right + 2 * share) / (reached + 2)
            chain *= share
            tokens += chain
        return tokens

    def speedup(self, rows: int, width: int) -> float:
        """Expected speedup over greedy decoding."""
        if width == 1:
            return 1.0
        single, wide = self.seconds(rows), self.seconds(rows * width) + rows * (width - 1) * self.drafting.value
        prepared = rows * self.preparing.value * self.outputs / max(1.0, self.tokens)
        return single / (wide / self.settled(width) + prepared)

    def width(self, rows: int, place: int = SPREAD, most: int = WIDTHS[-1]) -> int:
        """The width of a batch's next pass, the one at `place`: what pays, or now and then another one to learn from."""
        probes = self.sizes[rows.bit_length()]
        self.passes += 1
        probes.passes += 1
        if most == 1 or not self.seconds.known(rows):
            return 1
        if self._wants_pairs(rows, probes):
            probes.pairs += 1
            return 2
        best = self.best(rows, most)
        return probes.width(best, most) if probes.due and place >= probes.number % SPREAD else best

    def _wants_pairs(self, rows: int, probes: Probes) -> bool:
        """Whether passes of two slots are to be tried first; where no source has drafts, they are never known."""
        due = rows < MANY or probes.passes >= SHORTEST * (probes.pairs + 1)
        return due and not self.seconds.known(2 * rows) and probes.pairs < 3 * ENOUGH

    def best(self, rows: int, most: int = WIDTHS[-1]) -> int:
        """The width that pays, by what is known; it stands for some passes."""
        width, until = self.chosen.get(rows, (0, 0))
        if width == 0 or self.passes >= until:
            below = 1 if rows < MANY else 0
            known = [w for w in WIDTHS if w <= most and self.seconds.known(rows * max(1, w - below))]
            speedups = {w: self.speedup(rows, w) for w in known}
            width = max(speedups, key=speedups.__getitem__, default=1)
            width = width if speedups and speedups[width] >= GAIN else 1
            self.chosen[rows] = width, self.passes + STEADY
        return width

    def greedy(self, rows: int, most: int = WIDTHS[-1]) -> bool:
        """Whether nothing is worth drafting, nor worth trying, for a batch of so many rows."""
        probes = self.sizes[rows.bit_length()]
        if not self.seconds.known(rows) or self._wants_pairs(rows, probes):
            return most == 1
        return not probes.due and self.best(rows, most) == 1

    def decoded(self, rows: int, passes: int) -> None:
        """Count passes of greedy decoding's own loop."""
        self.passes += passes
        self.sizes[rows.bit_length()].passes += passes


class Pace:
    """The width of every pass of one batch, by experience; satisfies `passes.Pace`."""

    def __init__(self, experience: Experience, most: int):
        self.experience, self.most, self.place = experience, most, 0

    def feeds(self, sentences: Sequence[Any]) -> list[Feed]:
        """What these sentences feed in the next pass."""
        known, self.sentences = self.experience, sentences
        width = self.width = known.width(len(sentences), self.place, self.most)
        self.place += 1
        clock = perf_counter()
        if prepared := sum([sentence.widen(width) for sentence in sentences]):
            known.preparing.add((perf_counter() - clock) / prepared)
            clock = perf_counter()
        feeds = [sentence.feed() for sentence in sentences]
        self.clock = perf_counter()
        self.positions = sum([len(feed.tokens) for feed in feeds])
        if self.positions > len(feeds):
            known.drafting.add((self.clock - clock) / (self.positions - len(feeds)))
        return feeds

    def end(self, accepted: Sequence[Accepted]) -> None:
        """Take what the pass brought to each of its rows."""
        known = self.experience
        known.seconds.add(self.positions, perf_counter() - self.clock)
        if self.width > 1:
            for taken in accepted:
                known.learn(self.width - 1, len(taken.keep) - 1)
        self._ended(self.sentences)

    def drafts(self, rows: int) -> bool:
        """Whether so many sentences are worth drafting for, or trying."""
        return not self.experience.greedy(rows, self.most)

    def outputs(self, sentences: Sequence[Any]) -> list[list[int]]:
        """The tokens of these sentences so far, to be added to."""
        return [sentence.output for sentence in sentences]

    def rested(self, sentences: Sequence[Any], passes: int) -> None:
        """Complete sentences that greedy decoding's own loop decoded to their ends, and count its passes."""
        self.experience.decoded(len(sentences), passes)
        for sentence in sentences:
            sentence.complete()
        self._ended(sentences)

    def _ended(self, sentences: Sequence[Any]) -> None:
        for sentence in sentences:
            if sentence.hypothesis is not None:
                self.experience.ended(len(sentence.hypothesis.tokens))


@dataclass(frozen=True)
class Auto(Window):
    """Greedy decoding that drafts as many tokens as pay, and none where none do; it measures while it decodes.

    Parameters
    ----------
    width : int
        Most slots computed for each candidate in a pass, at most 32.
    draft, candidates
        As of a `Window`.
    experience : Experience
        What is known so far; every session begins with none.
    """

    experience: Experience = field(default_factory=Experience, repr=False, compare=False)

    name: ClassVar[str] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width > WIDTHS[-1]:
            raise ValueError(f"auto needs width <= {WIDTHS[-1]}, got {self.width}. Use a window for wider passes.")

    def with_draft(self, draft: Draft) -> "Auto":
        """The same with a draft resolved for a model, and no experience: another model's would mislead."""
        return replace(self, draft=draft, experience=Experience())

    def pace(self) -> Pace:
        """The widths of one batch."""
        return Pace(self.experience, self.width)

    def bind(self, source: Source, constraints: Constraints, vocabulary: int) -> list[Any]:
        """The drafts of each sentence, prepared when a pass first asks for them."""
        if isinstance(self.drafts.table, DraftTable) and self.drafts.needs_lexicon:
            self.drafts.table.check_sources(np.concatenate([source.row(row).ids[0] for row in range(len(source))]))
        return [
            LateDrafter(partial(self.drafts.bind, source.row(row), constraints, vocabulary, self.candidates))
            for row in range(len(source))
        ]
