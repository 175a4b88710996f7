"""Live measurements of the notebook of Devlin (2017): a few sentences, in seconds."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from fastdecode_lib.measuring.comparing import decoder_system
from fastdecode_lib.measuring.referee import measure
from fastdecode_lib.papers.run import table_of
from fastdecode_lib.papers.shared.rows import median, ratio_of
from fastdecode_lib.papers.sharp_models.engines import engines_of
from fastdecode_lib.trace import Trace
from fastdecode_lib.translation import Session


def engines(sentences: Sequence[str], source: str, target: str, *, model: str, rounds: int = 7) -> pd.DataFrame:
    """Greedy decoding of the sentences by torch and by the compiled engine in every precision.

    Milliseconds a token, the factor over torch with its interval, and the share of outputs that are torch's.
    """
    loaded = engines_of(model)
    names = ["torch float32", *(name for name in loaded if name != "torch float32")]
    systems = [decoder_system(Session.of(loaded[name], source, target, "greedy"), name) for name in names]
    sources = [loaded[names[0]].encode([sentence], source, target) for sentence in sentences]
    timings = measure(systems, sources, runs=rounds)
    first = timings[0]
    return table_of(
        {
            "name": m.name,
            "milliseconds_a_token": 1e3 * median(m) / sum(len(output) + 1 for output in m.outputs),
            **ratio_of("factor", first.seconds, m.seconds),
            "agreement": m.agreement(first),
        }
        for m in timings
    )


def shared_states(trace: Trace) -> pd.DataFrame:
    """Number of distinct states among the running hypotheses of a beam before each pass (Devlin, 2017, section 4.5).

    Two hypotheses that differ only in their last word share a state, which depends on the words before it.
    """
    rows = [{"pass": 1, "hypotheses": 1, "states": 1}]
    for iteration in trace.iterations[:-1]:
        running = [lane.parent for lane in iteration.lanes or () if not lane.finished]
        rows.append({"pass": len(rows) + 1, "hypotheses": len(running), "states": len(set(running))})
    return pd.DataFrame(rows)


def candidates(model: Any, sentence: str) -> pd.DataFrame:
    """The shortlist of a sentence: the lexicon's translations of each of its words."""
    from fastdecode_lib.projections.lexical import FIRST_WORD, Lexical

    text = model.tokenizer
    source = text.encode([sentence], *text.direction).ids[0]
    lists = Lexical.of(model.network, text.lexicon, frequent=0)
    rows = []
    for i in (i for i in source if i >= FIRST_WORD):
        ids = lists.lexicon.ids[lists.lexicon.offsets[i] : lists.lexicon.offsets[i + 1]]
        best = ", ".join(dict.fromkeys(piece.lstrip("▁") for piece in text.pieces(ids[:6])))
        rows.append(
            {"word": text.source_tokens([i])[0].lstrip("▁"), "translations": len(ids), "the best of them": best}
        )
    frame = pd.DataFrame(rows)
    frame.attrs["active"], frame.attrs["vocabulary"] = len(lists.candidates(source)), len(text.target.tokens)
    return frame
