"""The section of docs/results.md on combinations, written from the committed results by running this module."""

from typing import TYPE_CHECKING

from fastdecode_lib.checkpoints.hub import find_checkpoint
from fastdecode_lib.papers.page import Section, interval, markdown, measured, untrained

if TYPE_CHECKING:
    import pandas as pd

INTRODUCTION = """\
Every decoder with every projection that comes with three of the bundled translation models, in every precision; what is fitted
first (paper 001's learned screens, adaptive softmax) or installed (ScaNN) is not among them. And what is trained for it: drafts
and models tuned for parallel decoding, English to German. One thread, one sentence at a time, all systems of a table in
turns in one process, medians with 95% intervals over rounds; tokens a pass are greedy decoding's passes for each pass, on test
sentences, intervals over sentences. Every output marked the same was compared token for token. Raw:
`fastdecode_lib/results/combinations.*.laptop.json`; the notebook `06_combinations` shows them with what they mean. This section
is written from the results by `python -m fastdecode_lib.papers.combinations.page`."""


LOST = 0.05
"""Agreement below which a combination is not taken for a way of decoding."""


def _cube(frame: "pd.DataFrame") -> str:
    """The fastest of each model, with loss and without, and how far the product of the parts and the prediction are off."""
    import numpy as np
    import pandas as pd

    rows = frame[frame["speedup"].notna()] if "speedup" in frame else frame.head(0)
    lost = rows["agreement"] < LOST
    faster = rows[(rows["speedup"] > 1) & ~lost].sort_values("speedup", ascending=False)
    best = [
        faster.groupby("model", sort=False).head(6),
        faster[faster["lossless"]].groupby("model", sort=False).head(3),
    ]
    order = {name: number for number, name in enumerate(rows["model"].unique())}
    chosen = pd.concat(best).drop_duplicates("name").sort_values("speedup", ascending=False)
    chosen = chosen.sort_values("model", key=lambda names: names.map(order), kind="stable")
    names = {
        "model": "model", "decoder": "decoder", "projection": "projection", "precision": "precision", "lossless": "lossless",
        "agreement": "same outputs", "passes": "passes", "speedup": "speedup", "noisy": "noisy", "product": "product of parts",
        "predicted": "predicted", "bleu": "BLEU",
    }  # fmt: skip
    shown = chosen.assign(speedup=interval(chosen, "speedup")).reindex(columns=list(names)).rename(columns=names)
    base = rows[(rows["speedup"] == 1) & rows["lossless"]].set_index("model")["decoder"]
    parts = (
        (rows["decoder"] != rows["model"].map(base)).astype(int)
        + (rows["projection"] != "exact")
        + (rows["precision"] != "float32")
    )
    several = rows[(parts > 1) & ~lost]
    off = {
        name: float(np.exp(np.log(several[column] / several["speedup"]).abs().median()))
        for name, column in (("The product of the parts", "product"), ("The prediction", "predicted"))
    }
    refused = int(frame["refused"].notna().sum()) if "refused" in frame else 0
    told = (
        f"The six fastest of each model and its three fastest that lose nothing, of {len(rows)} combinations that run; {refused:,} "
        f"are refused, each for a stated reason. Paper 001's baselines stand here with the knobs that they come with, tuned for no "
        f"model (`vocabulary_clusters.end_to_end` tunes them); {int(lost.sum())} combinations, with "
        f"{', '.join(rows[lost]['projection'].drop_duplicates())}, keep fewer than {LOST:.0%} of plain decoding's outputs and are "
        f"left out. Of the {len(several)} others that combine two parts or three, "
        + " and ".join(f"{name.lower()} is off by a factor of {factor:.2f}" for name, factor in off.items())
        + f" in the median; the product promised too much in {(several['product'] > several['speedup']).mean():.0%}."
    )
    absent = frame["gap"].notna().any() if "gap" in frame else False
    without = (
        "Mask-Predict is not bundled and was not at hand for this run; paper 002's table 2 has it." if absent else ""
    )
    made = frame.attrs["provenance"].get("fingerprints", {})
    old = [name for name, kept in made.items() if find_checkpoint(name).fingerprint != kept]
    stale = f"Rows of {', '.join(old)} are of an earlier training of that model." if old else ""
    return "\n\n".join(part for part in (markdown(shown), told, without, stale) if part)


def _drafts(frame: "pd.DataFrame") -> str:
    """Tokens a pass at a width of 5, by model and draft."""
    rows = frame[(frame["width"] == 5) & frame["tokens_per_pass"].notna()]
    rows = rows.assign(tokens_per_pass=interval(rows, "tokens_per_pass"))
    table = rows.pivot_table(
        index=["model", "draft"], columns="set", values="tokens_per_pass", aggfunc="first", sort=False
    )
    same = frame["identical"].dropna()
    told = f"A window of 5. Of {len(same)} settings, outputs are all greedy decoding's in {int((same == 1).sum())}."
    return "\n\n".join(part for part in (markdown(table.reset_index()), told, untrained(frame)) if part)


def _time(frame: "pd.DataFrame") -> str:
    """Of each draft the width that is predicted to be fastest, run."""
    from fastdecode_lib.papers.combinations.drafts import as_predicted

    rows = frame[(frame["kind"] == "measured") & (frame["width"] > 1)]
    best = as_predicted(frame)
    names = {
        "model": "model", "shape": "shape", "precision": "precision", "set": "sentences", "draft": "draft", "width": "width",
        "tokens_per_pass": "tokens a pass", "cost": "cost of a pass", "predicted": "predicted", "speedup": "speedup",
        "noisy": "noisy",
    }  # fmt: skip
    shown = best.assign(speedup=interval(best, "speedup")).reindex(columns=list(names)).rename(columns=names)
    told = (
        f"{rows['sentences'].max():.0f} sentences of each kind, over the same model's greedy decoding in the same shape and "
        "precision, at the width that is predicted to be fastest: of "
        f"all {len(rows)} settings, outputs are greedy decoding's in {int((rows['identical'] == 1).sum())}. Grown: the model with "
        "every feature twice, layers that add nothing and tokens that never win, which says the same at the cost of opus-mt's "
        "shape. The prediction is from counted passes and measured costs of passes (of some widths, others on straight lines "
        "between them) and leaves the time of drafting out. The model tuned together is another checkpoint of "
        "`tatoeba-drafting` than the one of the two tables above. Noisy: an interquartile range of over 10% of the median."
    )
    return "\n\n".join(part for part in (markdown(shown), told, untrained(frame)) if part)


SECTION = Section(
    "## Combinations",
    INTRODUCTION,
    "combinations",
    (
        ("Everything with everything", "cube", _cube),
        ("Drafts that are learned", "drafts", _drafts),
        (
            "What training for parallel decoding does to quality",
            "tuned",
            measured(
                {
                    "model": "model",
                    "set": "sentences",
                    "bleu": "BLEU",
                    "bleu_p": "p",
                    "chrf": "chrF",
                    "not_ended": "not ended",
                },
                "p: how likely the distance in BLEU to the untouched model is by chance (paired bootstrap).",
            ),
        ),
        ("Learned drafts in time", "draft_time", _time),
    ),
)

if __name__ == "__main__":
    SECTION.write()
