"""The command: three campaigns by turns until the time is over, and one table."""

import argparse
import json
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pandas as pd
import torch
from tqdm.auto import tqdm

from fastdecode_lib.measuring.provenance import provenance
from soak import damage, differences, disturbed
from soak.workshop import Outcome, prepare

GOOD = {"equal", "done", "refused"}
"""Outcomes that are as they should be; the others are faults."""
SHARES = {"differences": 0.1, "damaged files": 0.5, "disturbed": 0.4}
"""Of the time."""


def main() -> int:
    """Run the campaigns and print what came of them."""
    parser = argparse.ArgumentParser(
        prog="soak", description="Random cases, damaged files and disturbed, for some minutes."
    )
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument(
        "--seed", type=int, default=int(date.today().strftime("%j")), help="default: the day of the year"
    )
    parser.add_argument("--json", type=Path, help="write every fault and all counts to this file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="fastdecode-soak-") as folder:
        counts, faults = soak(Path(folder), options.minutes, options.seed)
    rows = [{"campaign": c, "what": w, **{k: n[k] for k in sorted(n)}} for (c, w), n in sorted(counts.items())]
    print(pd.DataFrame(rows).fillna(0).to_string(index=False, float_format="%d"))
    for campaign, what, how, outcome in faults:
        print(f"FAULT in {campaign}, {what}, {how}: {outcome.kind}. {outcome.message}")
    if options.json:
        content = {
            "provenance": provenance(seed=options.seed),
            "rows": rows,
            "faults": [(*f[:3], f[3].kind, f[3].message) for f in faults],
        }
        options.json.write_text(json.dumps(content, indent=1), encoding="utf-8")
    total = sum(sum(number.values()) for number in counts.values())
    print(f"seed {options.seed}: {total:,} cases, {len(faults)} at fault")
    return 1 if faults else 0


def soak(
    folder: Path, minutes: float, seed: int
) -> tuple[dict[tuple[str, str], Counter[str]], list[tuple[str, str, str, Outcome]]]:
    """Counts of outcomes by campaign and by what it was tried on, and every fault."""
    end = time.monotonic() + 60 * minutes
    prepare(folder / "ready")
    ready, before, seconds = disturbed.made(folder)
    damage.check(ready, folder / "damaged")
    campaigns: dict[str, Iterator[tuple[str, str, Outcome]]] = {
        "differences": differences.cases(seed),
        "damaged files": damage.cases(ready, folder / "damaged", seed),
        "disturbed": disturbed.cases(before, ready, folder / "killed", seconds, seed),
    }
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    faults, spent = [], dict.fromkeys(campaigns, 0.0)
    with tqdm(desc="soak", unit="case", file=sys.stderr, mininterval=5) as bar:
        while time.monotonic() < end:
            campaign = min(campaigns, key=lambda name: spent[name] / SHARES[name])
            began = time.monotonic()
            what, how, outcome = next(campaigns[campaign])
            spent[campaign] += time.monotonic() - began
            counts[campaign, what][outcome.kind] += 1
            if outcome.kind not in GOOD:
                faults.append((campaign, what, how, outcome))
                bar.write(f"FAULT in {campaign}, {what}, {how}: {outcome.kind}. {outcome.message}", file=sys.stderr)
            bar.update()
    return counts, faults


if __name__ == "__main__":
    sys.exit(main())
