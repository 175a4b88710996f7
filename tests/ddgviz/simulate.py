"""Realistic traces without a model: a table of what each token hangs on, decoded by Jacobi passes."""

import copy
from typing import Any

PAD = 0
END = 1


def jacobi(
    words: list[str],
    needs: dict[int, list[int]],
    *,
    width: int,
    source: str = "A sentence.",
    decoder: str = "window:width=8",
    block: bool = False,
    probabilities: bool = True,
    languages: tuple[str, str] = ("en", "de"),
) -> dict[str, Any]:
    """The trace of a Jacobi run that decodes `words`.

    Parameters
    ----------
    words : list of str
        Pieces of the output; the end is added.
    needs : dict of int to list of int
        Positions whose drafts must be right before the model says the right token; by default the one before.
    width : int
        Slots per pass: a sliding window, or the length of a block.
    block : bool
        Whether to stay on a block until all of it is settled.
    """
    target = [2 + words.index(word) for word in words] + [END]
    pieces = {str(PAD): "<pad>", str(END): "</s>"} | {str(2 + words.index(word)): word for word in words}
    drafts: dict[int, tuple[int, str]] = {}
    iterations: list[dict[str, Any]] = []
    done = 0
    while done < len(target):
        stop = (done // width + 1) * width if block else done + width
        slots = list(range(done, stop))
        before = [drafts.get(slot, (PAD, "pad")) for slot in slots]
        known = dict(enumerate(target[:done])) | {slot: token for slot, (token, _) in zip(slots, before, strict=True)}
        tokens = [_predict(slot, known, target, needs) for slot in slots]
        verified = 1
        while (
            verified < len(slots) and before[verified - 1][0] == tokens[verified - 1] and done + verified < len(target)
        ):
            verified += 1
        iterations.append(row_of_pass(len(iterations), slots, before, tokens, verified, probabilities))
        drafts = {slot: (token, "recycled") for slot, token in zip(slots, tokens, strict=True)}
        done += verified
    return {
        "format": "fastdecode-trace",
        "version": 1,
        "source": {"text": source, "language": languages[0], "pieces": ["▁" + word for word in source.split()]},
        "target": {"text": "".join(words).replace("▁", " ").strip(), "language": languages[1]},
        "settings": {
            "model": "invented",
            "decoder": decoder,
            "projection": "exact",
            "engine": "torch",
            "dtype": "float32",
            "device": "cpu",
        },
        "end": [END],
        "pieces": pieces,
        "iterations": iterations,
        "hypotheses": [{"tokens": target, "score": -4.25, "stop": "end"}],
        "greedy": {"calls": len(target), "identical": True},
        "edges": [],
    }


def _predict(slot: int, known: dict[int, int], target: list[int], needs: dict[int, list[int]]) -> int:
    if slot >= len(target):
        return END
    missing = [p for p in needs.get(slot, [slot - 1] if slot else []) if known.get(p) != target[p]]
    return target[max(0, missing[0])] if missing else target[slot]


def row_of_pass(
    call: int, slots: list[int], before: list[tuple[int, str]], tokens: list[int], verified: int, known: bool
) -> dict[str, Any]:
    status = []
    for index, (draft, _) in enumerate(before):
        status.append("settled" if index < verified else "draft" if tokens[index] == draft else "changed")
    sure = [
        round(0.99 - 0.013 * (slot * 7 % 5) - (0 if i < verified else 0.08 * (i + 1)), 4)
        for i, slot in enumerate(slots)
    ]
    return {
        "call": call,
        "slots": slots,
        "drafts": [draft for draft, _ in before],
        "origins": [origin for _, origin in before],
        "tokens": tokens,
        "status": status,
        "probabilities": [max(0.02, p) for p in sure] if known else None,
        "margins": [round(4 * max(0.02, p), 3) for p in sure] if known else None,
        "num_active": None,
        "cluster": None,
        "lanes": None,
        "seconds": 0.004,
    }


def garden() -> dict[str, Any]:
    """Ten tokens by a sliding window of five."""
    words = ["▁Die", "▁Kinder", "▁spielen", "▁im", "▁Garten", "▁hinter", "▁der", "▁Schule", "."]
    needs = {3: [], 4: [1], 5: [4], 6: [4], 7: [4], 8: [7], 9: [7]}
    text = "The children are playing in the garden behind the school."
    return jacobi(words, needs, width=5, source=text, decoder="window:width=5")


def station() -> dict[str, Any]:
    """Thirty-two tokens, words in pieces, in blocks of six."""
    text = "Because of the heavy snowfall, the early trains between the northern towns were cancelled until Thursday."
    said = "▁Wegen ▁des ▁heftigen ▁Schnee fall s ▁wurden ▁die ▁frühen ▁Züge ▁zwischen ▁den ▁Städten ▁im ▁Norden , "
    said += "▁wie ▁die ▁Bahn ▁gestern ▁Abend ▁mit teil te , ▁bis ▁ein schließlich ▁Donnerstag ▁ge strichen ."
    words = said.split()
    needs = {slot: [slot - 1] if slot % 3 == 1 else [max(0, slot - 4)] for slot in range(1, 33)}
    return jacobi(words, needs, width=6, source=text, decoder="gauss_seidel:block=6", block=True)


def long_block() -> dict[str, Any]:
    """One long block: many passes and drafts far past the end."""
    said = "▁Am ▁Morgen ▁las ▁sie ▁die ▁Zeitung , ▁am ▁Abend ▁schrieb ▁sie ▁lange ▁Briefe ▁an ▁ihre ▁Schwester ▁in "
    said += "▁Berg en ▁und ▁Oslo ."
    words = said.split()
    needs = {slot: [slot - 1] if slot % 9 else [max(0, slot - 2)] for slot in range(1, 22)}
    return jacobi(
        words,
        needs,
        width=64,
        decoder="jacobi:block=64",
        source="In the morning she read the paper, in the evening she wrote long letters.",
    )


def beam() -> dict[str, Any]:
    """Six tokens by beam search: open hypotheses before finished ones change places at every pass."""
    words = ["▁Das", "▁Haus", "▁ist", "▁sehr", "▁alt"]
    trace = jacobi(words, {}, width=1, decoder="beam:size=3", source="The house is very old.")
    das, haus, ist, sehr, alt, end = 2, 3, 4, 5, 6, END
    open_lanes = [
        [[das], [haus], [sehr]],
        [[das, haus], [das, ist], [haus, ist]],
        [[das, haus, ist], [haus, ist, sehr], [das, haus, sehr]],
        [[das, haus, ist, sehr], [das, haus, ist, alt], [haus, ist, sehr, alt]],
        [[das, haus, ist, sehr, alt], [das, haus, ist, alt, alt]],
        [[das, haus, ist, sehr, alt, alt]],
    ]
    done_lanes = [[], [], [], [], [[das, haus, ist, alt, end]], [[das, haus, ist, sehr, alt, end]]]
    trace["iterations"] = []
    done: list[dict[str, Any]] = []
    before: list[int] = []
    for call, lanes in enumerate(open_lanes):
        live = [_lane(tokens, open_lanes[call - 1] if call else [[]], False, i) for i, tokens in enumerate(lanes)]
        done += [_lane(tokens, open_lanes[call - 1], True, 0) for tokens in done_lanes[call]]
        done.sort(key=lambda lane: -lane["score"])
        last = call == len(open_lanes) - 1
        tokens = done[0]["tokens"] if last else lanes[0]
        drafts = [before[i] if i < len(before) else -1 for i in range(len(tokens))]
        before = tokens
        changed = ["draft" if d == t else "changed" for d, t in zip(drafts, tokens, strict=True)]
        trace["iterations"].append(
            {
                "call": call,
                "slots": list(range(len(tokens))),
                "drafts": drafts,
                "origins": ["recycled" if d >= 0 else "" for d in drafts],
                "tokens": tokens,
                "status": ["settled"] * len(tokens) if last else changed,
                "probabilities": None,
                "margins": None,
                "num_active": None,
                "cluster": None,
                "lanes": [*done, *live],
                "seconds": 0.01,
            }
        )
    trace["hypotheses"] = [{"tokens": lane["tokens"], "score": lane["score"], "stop": "end"} for lane in done]
    trace["greedy"] = {"calls": 6, "identical": False}
    return trace


def _lane(tokens: list[int], parents: list[list[int]], finished: bool, rank: int) -> dict[str, Any]:
    score = -0.31 * len(tokens) - 0.45 * rank
    score = round(score / len(tokens) - (0.2 if 5 not in tokens else 0), 4) if finished else round(score, 4)
    return {"parent": parents.index(tokens[:-1]), "tokens": tokens, "score": score, "finished": finished}


def drafted() -> dict[str, Any]:
    """The garden drafted by tables as well as by the pass before."""
    trace = garden()
    cycle = ["ngram+lexicon", "recycled", "lexicon", "ngram", "source"]
    for row in trace["iterations"]:
        row["origins"] = [
            o and cycle[(slot + row["call"]) % 5] for slot, o in zip(row["slots"], row["origins"], strict=True)
        ]
    return trace


def other_words(trace: dict[str, Any]) -> dict[str, Any]:
    """The same run with another word at the fifth position."""
    changed = copy.deepcopy(trace)
    old = changed["hypotheses"][0]["tokens"][4]
    lists = [changed["hypotheses"][0]["tokens"]]
    for row in changed["iterations"]:
        lists += [row["tokens"], row["drafts"]]
    for tokens in lists:
        tokens[:] = [99 if token == old else token for token in tokens]
    changed["pieces"]["99"] = "▁Hof"
    return changed


def greedy() -> dict[str, Any]:
    """One token a pass."""
    return jacobi(
        ["▁Das", "▁Haus", "▁ist", "▁alt", "."],
        {},
        width=1,
        decoder="greedy",
        source="The house is old.",
        probabilities=False,
    )


def measured() -> dict[str, Any]:
    """The garden with measured dependencies."""
    found = [(0, 1, 0.9), (1, 2, 0.8), (1, 4, 0.3), (4, 5, 0.7), (4, 6, 0.3), (4, 7, 0.5), (7, 8, 0.8), (7, 9, 0.45)]
    return garden() | {"edges": [{"from": a, "to": b, "strength": s} for a, b, s in found]}


def events(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """The same content as a decoder would send it while it runs."""
    start = {key: trace[key] for key in ("format", "version", "source", "target", "settings", "end")}
    end = {key: trace[key] for key in ("target", "pieces", "hypotheses", "greedy", "edges", "clusters") if key in trace}
    rows = [{"event": "iteration", "pieces": trace["pieces"]} | row for row in trace["iterations"]]
    return [
        {"event": "start"} | start | {"target": {"text": "", "language": trace["target"]["language"]}},
        *rows,
        {"event": "end"} | end,
    ]


def hostile() -> dict[str, Any]:
    """A run whose every text is an attack."""
    from hostile import TOKENS

    return jacobi(["▁" + token for token in TOKENS], {}, width=2, source=" ".join(TOKENS[:4]), decoder=TOKENS[0])
