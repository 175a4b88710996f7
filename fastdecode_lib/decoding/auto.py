"""Greedy decoding that drafts as many tokens as pay; one file because what was measured and the next width decide each other.

A window of W slots (`fastdecode_lib.decoding.window`) pays when its passes settle more tokens than single passes would in the
same time. Both depend on model, machine, number format, text and batch, so both are measured during decoding: how often the
n-th draft token is accepted, and how long passes take by the positions that they compute. The output is greedy decoding's
whatever the widths are.
"""

import sys
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import perf_counter
from typing import Any, ClassVar

import numpy as np

from fastdecode_lib.core import Constraints, Model, Passes, Projection, Source
from fastdecode_lib.decoding.choosing import check_fits
from fastdecode_lib.decoding.passes import Accepted, Feed, decode_singly
from fastdecode_lib.decoding.window import Window
from fastdecode_lib.drafts.scores import LEXICON
from fastdecode_lib.drafts.sources import Draft, LateDrafter
from fastdecode_lib.drafts.table import DraftTable

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
GAIN = 1.03
"""Least expected speedup for which anything is drafted."""
LATEST, ENOUGH = 12, 3
"""Latest passes of similar size whose seconds count, and how many of them give a reliable time."""
SHORTEST, LONGEST = 16, 512
"""Passes between two probes of another width: the number doubles as long as probes do not change the best width."""
HOPELESS, RARELY = 0.8, 4 * LONGEST
"""Speedup of two slots below which probes are rare from the start, where greedy decoding is best, and the passes between them."""
SPREAD = 8
"""First passes of a sentence over which probes are spread, since drafts for its first slots are unlike later ones."""
BURST = 16
"""Passes that a probe lasts for one sentence, fewer for more of them: the first ones find code and tables out of the caches, and
are slower than those of a decoding that drafts all the time."""
MANY = 8
"""Rows of a large batch, where drafts seldom pay: the first is greedy decoding's own loop's, then one of `SHORTEST` passes tries
two slots."""
STEADY = 48
"""Passes for which a chosen width is kept."""
MEMORY, FADING = 400, 0.99
"""Verified drafts after which all counts are halved; weight of an output's length relative to the next one's."""


class Times:
    """The latest times of a repeated step."""

    def __init__(self) -> None:
        self.latest: deque[float] = deque(maxlen=LATEST)

    def add(self, seconds: float) -> None:
        """Add a time."""
        self.latest.append(seconds)

    @property
    def known(self) -> bool:
        """Whether there are enough times."""
        return len(self.latest) >= ENOUGH

    @property
    def value(self) -> float:
        """The lower quartile of the latest times, which other load does not disturb; 0 if there are none."""
        latest = sorted(self.latest)
        return latest[len(latest) // 4] if latest else 0.0


class PassTimes:
    """Seconds of passes by their positions, all rows together."""

    def __init__(self) -> None:
        self.by_size: defaultdict[int, Times] = defaultdict(Times)
        self.smallest, self.largest = sys.maxsize, 0
        """Sizes with enough times."""

    def add(self, positions: int, seconds: float) -> None:
        """Add the seconds of a pass."""
        size = _rounded(positions)
        times = self.by_size[size]
        times.add(seconds)
        if len(times.latest) >= ENOUGH:
            self.smallest, self.largest = min(self.smallest, size), max(self.largest, size)

    def known(self, positions: int) -> bool:
        """Whether passes both at most and at least as large as this one were timed."""
        return self.smallest <= _rounded(positions) and positions <= self.largest

    def __call__(self, positions: int) -> float:
        """Seconds of a pass, interpolated between the sizes that were timed; ask `known` first."""
        sizes, times = zip(
            *sorted((size, times.value) for size, times in list(self.by_size.items()) if times.known), strict=True
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
    """When batches of similar size try another width."""

    def __init__(self) -> None:
        self.passes, self.next_probe, self.number, self.period = 0, SHORTEST, 0, SHORTEST
        self.two_slot_passes = 0
        """Passes of two slots that were tried at the beginning."""
        self.previous_best: dict[int, int] = {}
        """The best width at the last probe, by rows."""
        self.probed, self.probe_ends = 1, 0
        """The width of the latest probe, and the pass up to which it lasts."""
        self.promised: dict[int, int] = {}
        """The number of probes when drafting first seemed to pay again, by rows."""

    @property
    def due(self) -> bool:
        """Whether it is time for a probe."""
        return self.passes >= self.next_probe

    @property
    def lasts(self) -> bool:
        """Whether a probe goes on."""
        return self.passes < self.probe_ends

    def width(self, best: int, most: int, rows: int, hopeless: bool) -> int:
        """A width other than the best, for a probe that begins: by turns 1, the next smaller and the next larger one."""
        unchanged = best == self.previous_best.get(rows, best)
        self.period = RARELY if hopeless else min(LONGEST, 2 * self.period) if unchanged else SHORTEST
        self.number, self.previous_best[rows] = self.number + 1, best
        index = WIDTHS.index(best)
        widths = [width for width in (1, *WIDTHS[max(1, index - 1) : index + 2]) if width != best and width <= most]
        self.probed = widths[self.number % len(widths)] if widths else best
        self.probe_ends = self.passes + max(1, BURST // rows)
        self.next_probe = self.probe_ends + self.period
        return self.probed

    def confirms(self, rows: int, pays: bool) -> bool:
        """Whether drafting for this many rows, which did not pay before, pays now and did so before the latest probe.

        The first time, that probe is made soon.
        """
        promised = self.promised.get(rows)
        if pays and promised is None:
            self.promised[rows] = self.number
            self.next_probe = min(self.next_probe, self.passes + SHORTEST)
        confirmed = pays and promised is not None and self.number > promised
        if confirmed or not pays:
            self.promised.pop(rows, None)
        return confirmed

    def begins(self, place: int) -> bool:
        """Whether a probe begins at pass number `place` of a batch: spread over the first passes, or long overdue."""
        return self.due and (place >= self.number % SPREAD or self.passes >= self.next_probe + SHORTEST)


class Experience:
    """What drafting has settled and cost so far, for one model and text; threads may share it."""

    def __init__(self) -> None:
        self.verified, self.accepted = [0.0] * (WIDTHS[-1] - 1), [0.0] * (WIDTHS[-1] - 1)
        """How often the n-th draft token was verified with all before it accepted, and how often it was accepted too."""
        self.seconds, self.greedy_seconds = PassTimes(), PassTimes()
        """Of passes of the loop that drafts, and of greedy decoding's own, which does less beside its network."""
        self.drafting, self.preparing = Times(), Times()
        """Seconds to draft a token, and to prepare the drafts of a sentence."""
        self.tokens, self.outputs = 0.0, 0.0
        """Tokens of finished outputs, and the number of outputs; earlier ones count less."""
        self.widths: dict[int, tuple[int, int]] = {}
        """The best width for a number of rows, and the pass up to which it is kept."""
        self.sizes: defaultdict[int, Probes] = defaultdict(Probes)
        self.passes = 0

    def learn(self, drafted: int, accepted: int) -> None:
        """Count the draft tokens of one row of a pass; those that no source could propose count as rejected."""
        for place in range(min(drafted, accepted + 1)):
            self.verified[place] += 1
        for place in range(accepted):
            self.accepted[place] += 1
        if self.verified[0] > MEMORY:
            self.verified, self.accepted = ([0.5 * n for n in counts] for counts in (self.verified, self.accepted))

    def count_output(self, tokens: int) -> None:
        """Count an output with this number of tokens."""
        self.tokens, self.outputs = tokens + FADING * self.tokens, 1 + FADING * self.outputs

    def expected_tokens(self, width: int) -> float:
        """Expected number of tokens that a row of a pass settles."""
        tokens, rate, chance = 1.0, 0.5, 1.0
        for verified, accepted in zip(self.verified[: width - 1], self.accepted, strict=False):
            rate = (accepted + 2 * rate) / (verified + 2)
            chance *= rate
            tokens += chance
        return tokens

    def speedup(self, rows: int, width: int) -> float:
        """Expected speedup over greedy decoding."""
        if width == 1:
            return 1.0
        single = (self.greedy_seconds if self.greedy_seconds.known(rows) else self.seconds)(rows)
        wide = self.seconds(rows * width) + rows * (width - 1) * self.drafting.value
        prepared = rows * self.preparing.value * self.outputs / max(1.0, self.tokens)
        return single / (wide / self.expected_tokens(width) + prepared)

    def width(self, rows: int, place: int = SPREAD, most: int = WIDTHS[-1]) -> int:
        """The width of a batch's pass number `place`: the best one, or now and then another one as a probe."""
        probes = self.sizes[rows.bit_length()]
        self.passes += 1
        probes.passes += 1
        if most == 1 or not self._knows_single(rows):
            return 1
        if self._tries_two_slots(rows, probes):
            probes.two_slot_passes += 1
            return 2
        if probes.lasts:
            return probes.probed
        best = self.best(rows, most)
        if not probes.begins(place):
            return best
        hopeless = best == 1 and self.seconds.known(2 * rows) and self.speedup(rows, 2) < HOPELESS
        return probes.width(best, most, rows, hopeless)

    def _knows_single(self, rows: int) -> bool:
        """Whether passes of one slot for each of these rows were timed; of a large batch, greedy decoding's own will do."""
        return self.seconds.known(rows) or (rows >= MANY and self.greedy_seconds.known(rows))

    def _tries_two_slots(self, rows: int, probes: Probes) -> bool:
        """Whether to try two slots at the beginning, to time such passes; not for ever, since there may be no drafts."""
        tried = probes.two_slot_passes
        if rows < MANY:
            return tried < max(3 * ENOUGH, BURST // rows) and (tried > 0 or not self.seconds.known(2 * rows))
        due = probes.passes >= SHORTEST * (tried + 1)
        return due and not self.seconds.known(2 * rows) and tried < 3 * ENOUGH

    def best(self, rows: int, most: int = WIDTHS[-1]) -> int:
        """The width with the highest expected speedup, kept for `STEADY` passes, and as long as no other is much better."""
        width, valid_until = self.widths.get(rows, (0, 0))
        if width == 0 or self.passes >= valid_until:
            fewer = 1 if rows < MANY else 0
            timed = [w for w in WIDTHS if w <= most and self.seconds.known(rows * max(1, w - fewer))]
            speedups = {w: self.speedup(rows, w) for w in timed}
            previous, width = width, max(speedups, key=speedups.__getitem__, default=1)
            if speedups and speedups.get(previous, 0.0) >= GAIN and GAIN * speedups[previous] >= speedups[width]:
                width = previous
            width = width if speedups and speedups[width] >= GAIN else 1
            if previous == 1 and not self.sizes[rows.bit_length()].confirms(rows, width > 1):
                width = 1
            self.widths[rows] = width, self.passes + STEADY
        return width

    def greedy(self, rows: int, most: int = WIDTHS[-1]) -> bool:
        """Whether greedy decoding's own loop should take over a batch of this many rows, to rest or to be timed."""
        probes = self.sizes[rows.bit_length()]
        if most == 1:
            return True
        if not self._knows_single(rows):
            return rows >= MANY
        if self._tries_two_slots(rows, probes):
            return False
        return probes.probed == 1 if probes.lasts else not probes.due and self.best(rows, most) == 1

    def decoded(self, rows: int, passes: int) -> None:
        """Count passes that greedy decoding's own loop made."""
        self.passes += passes
        self.sizes[rows.bit_length()].passes += passes


class Pace:
    """The width of every pass of one batch, by experience."""

    def __init__(self, experience: Experience, most: int):
        self.experience, self.most, self.place = experience, most, 0

    def feeds(self, sentences: Sequence[Any]) -> list[Feed]:
        """Feeds of the next pass, one for each sentence."""
        experience, self.sentences = self.experience, sentences
        width = self.width = experience.width(len(sentences), self.place, self.most)
        self.place += 1
        start = perf_counter()
        if prepared := sum([sentence.widen(width) for sentence in sentences]):
            experience.preparing.add((perf_counter() - start) / prepared)
            start = perf_counter()
        feeds = [sentence.feed() for sentence in sentences]
        self.clock = perf_counter()
        self.positions = sum([len(feed.tokens) for feed in feeds])
        if self.positions > len(feeds):
            experience.drafting.add((self.clock - start) / (self.positions - len(feeds)))
        return feeds

    def end(self, accepted: Sequence[Accepted]) -> None:
        """Learn from the tokens that each row of the pass accepted."""
        experience = self.experience
        experience.seconds.add(self.positions, perf_counter() - self.clock)
        if self.width > 1:
            for row in accepted:
                experience.learn(self.width - 1, len(row.keep) - 1)
        self._count_outputs(self.sentences)

    def drafts(self, rows: int) -> bool:
        """Whether to draft for this many sentences, or to probe."""
        return not self.experience.greedy(rows, self.most)

    def outputs(self, sentences: Sequence[Any]) -> list[list[int]]:
        """The tokens of these sentences so far, as lists to append to."""
        return [sentence.output for sentence in sentences]

    def timed(self, rows: int, seconds: float) -> None:
        """Take the seconds of a pass of greedy decoding's own loop."""
        self.experience.greedy_seconds.add(rows, seconds)

    def rested(self, sentences: Sequence[Any], passes: int) -> None:
        """Complete sentences that greedy decoding's own loop has decoded to the end, and count its passes."""
        self.experience.decoded(len(sentences), passes)
        for sentence in sentences:
            sentence.complete()
        self._count_outputs(sentences)

    def _count_outputs(self, sentences: Sequence[Any]) -> None:
        for sentence in sentences:
            if sentence.hypothesis is not None:
                self.experience.count_output(len(sentence.hypothesis.tokens))


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
        Measurements so far; a new session has none.
    """

    experience: Experience = field(default_factory=Experience, repr=False, compare=False)

    name: ClassVar[str] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width > WIDTHS[-1]:
            raise ValueError(f"auto needs width <= {WIDTHS[-1]}, got {self.width}. Use a window for wider passes.")

    def with_draft(self, draft: Draft) -> "Auto":
        """The same with a draft resolved for a model, and new experience, which holds for one model only."""
        return replace(self, draft=draft, experience=Experience())

    def iterate(
        self, model: Model, projection: Projection, source: Source, constraints: Constraints, *, observe: bool = False
    ) -> Passes:
        """Passes of a batch; greedy decoding alone, which need not prepare drafts, where they do not pay."""
        rows, experience = len(source), self.experience
        together = rows == 1 or "ragged" in model.supports
        if not (rows and together and experience.greedy(rows, self.width)):
            return (yield from super().iterate(model, projection, source, constraints, observe=observe))
        check_fits(self, model, source)
        greedy = decode_singly(model, projection, source, constraints, observe, experience.greedy_seconds.add)
        hypotheses = yield from greedy
        experience.decoded(rows, max(len(hypothesis.tokens) for hypothesis in hypotheses))
        for hypothesis in hypotheses:
            experience.count_output(len(hypothesis.tokens))
        return hypotheses

    def pace(self) -> Pace:
        """The widths of one batch."""
        return Pace(self.experience, self.width)

    def bind(self, source: Source, constraints: Constraints, vocabulary: int) -> list[Any]:
        """The drafts of each sentence, prepared when a pass first needs them."""
        if isinstance(self.drafts.table, DraftTable) and LEXICON in self.drafts.parts:
            self.drafts.table.check_sources(np.concatenate([source.row(row).ids[0] for row in range(len(source))]))
        return [
            LateDrafter(partial(self.drafts.bind, source.row(row), constraints, vocabulary, self.candidates))
            for row in range(len(source))
        ]
