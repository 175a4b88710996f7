"""Damaged files: one of those that commands read is altered, and a command reads it."""

import json
import shutil
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import ddgviz
from fastdecode_lib import cli
from soak.workshop import Outcome, run

TRANSLATE = "translate --model model --from en --to de --engine {engine} --max-length 6"
READERS = {
    "model/draft-tables/*": TRANSLATE + " --decoder window:draft=ngram+lexicon Hello",
    "model/draft-head.safetensors": TRANSLATE + " --decoder window:draft=head Hello",
    "model/projections/*/*": TRANSLATE + " --projection clustered Hello",
    "model/*": TRANSLATE + " Hello",
    "contexts/*": "fit clustered --contexts contexts --model model --clusters 4 --top 2 --out fitted",
    "contexts/*/*": "fit clustered --contexts contexts --model model --clusters 4 --top 2 --out fitted",
    "runs/micro/*": "train micro --data corpus --folder runs --threads 1 --updates 14",
    "work/*/*": "draft-table --model model --source text.txt --from en --to de --least 1 --folder work --out tables",
    "out.trace.json": "",
}
"""The command that reads the files of a pattern; the first pattern that fits. A trace is drawn."""
ODD: tuple[Any, ...] = (
    0, -1, 1, 7, 10**6, 10**12, 10**400, -0.5, 1e308, True, None, "", "x" * 2_000, "../../etc", "\u2028<b>", [], {}, [[]], {"a": 1},
)  # fmt: skip
RAW = ("NaN", "Infinity", "1e999", "[" * 30_000 + "]" * 30_000, '{"a":1,"a":2}')
"""Written where a value stood."""


def cases(ready: Path, place: Path, seed: int) -> Iterator[tuple[str, str, Outcome]]:
    """Alter a file of a copy of `ready` and read it, without end: pattern, how it was altered, and what came of it."""
    random = np.random.default_rng((seed, 1))
    patterns = list(READERS)
    while True:
        pattern = patterns[int(random.integers(len(patterns)))]
        files = [f for f in sorted(ready.glob(pattern)) if f.is_file() and f.name != "lock"]
        if not files:
            continue
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(ready, place)
        file = place / files[int(random.integers(len(files)))].relative_to(ready)
        how = alter(file, random)
        line = READERS[pattern].format(engine=str(random.choice(["torch", "compiled"])))
        work = partial(cli.main, line.split()) if line else draw
        yield pattern, f"{file.relative_to(place)}: {how}", run(place, work)


def check(ready: Path, place: Path) -> None:
    """Read every file undamaged: a refusal would otherwise prove nothing."""
    shutil.copytree(ready, place)
    for line in filter(None, READERS.values()):
        outcome = run(place, partial(cli.main, line.format(engine="torch").split()))
        if outcome.kind != "done":
            raise RuntimeError(f"{line} is refused where nothing is damaged: {outcome}")


def draw() -> int:
    """Draw the trace of the folder that it is run in."""
    ddgviz.save(Path("out.trace.json"), "drawn.svg")
    return 0


def alter(file: Path, random: np.random.Generator) -> str:
    """Alter a file at random, and say how."""
    kind = random.random()
    if kind < 0.25:
        return _bytes(file, random)
    if file.suffix == ".json":
        return _json(file, random)
    if file.suffix == ".safetensors":
        return _safetensors(file, random)
    return _bytes(file, random)


def _bytes(file: Path, random: np.random.Generator) -> str:
    content = bytearray(file.read_bytes())
    how = str(random.choice(["flipped", "cut short", "emptied", "longer", "a folder", "gone", "zeros"]))
    if how == "flipped":
        for place in random.integers(0, max(1, len(content)), size=int(random.integers(1, 9))):
            content[place] ^= int(random.integers(1, 256))
    elif how == "cut short":
        content = content[: int(random.integers(0, max(1, len(content))))]
    elif how == "emptied":
        content = bytearray()
    elif how == "longer":
        content += random.bytes(int(random.integers(1, 100)))
    elif how == "zeros":
        start = int(random.integers(0, max(1, len(content))))
        content[start : start + 64] = bytes(len(content[start : start + 64]))
    file.unlink()
    if how == "a folder":
        file.mkdir()
    elif how != "gone":
        file.write_bytes(content)
    return how


def _json(file: Path, random: np.random.Generator) -> str:
    content: Any = json.loads(file.read_text(encoding="utf-8"))
    holder, path, key = {"": content}, "", ""
    inner: Any = content
    while isinstance(inner, dict | list) and len(inner) and (not path or random.random() < 0.8):
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        holder, key = inner, keys[int(random.integers(len(keys)))]
        path, inner = f"{path}/{key}", inner[key]
    how = str(random.choice(["odd", "raw", "gone", "unknown", "nearby"]))
    raw = str(random.choice(RAW))
    if how == "gone" and isinstance(holder, dict):
        del holder[key]
    elif how == "unknown" and isinstance(holder, dict):
        holder["no such key"] = 1
    elif how == "nearby" and isinstance(inner, int):
        holder[key] = inner + int(random.integers(-3, 4))
    else:
        value = "@raw@" if how == "raw" else ODD[int(random.integers(len(ODD)))]
        holder[key] = value
        how = raw[:12] if how == "raw" else f"{value!r}"[:40]
    file.write_text(json.dumps(content).replace('"@raw@"', raw), encoding="utf-8")
    return f"{path} {how}"


def _safetensors(file: Path, random: np.random.Generator) -> str:
    content = file.read_bytes()
    (size,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + size])
    body = bytearray(content[8 + size :])
    names = [name for name in header if name != "__metadata__"]
    name = names[int(random.integers(len(names)))]
    entry = header[name]
    how = str(random.choice(["dtype", "shape", "renamed", "values", "offsets", "metadata"]))
    if how == "dtype":
        entry["dtype"] = str(
            random.choice(["F64", "F32", "F16", "BF16", "I8", "U8", "F8_E4M3", "BOOL", "I64", "U16", "X9"])
        )
        how = entry["dtype"]
    elif how == "shape":
        entry["shape"] = list(random.permutation([*entry["shape"], int(random.choice([0, 1, 2, 10**9]))]).tolist())
    elif how == "renamed":
        header[f"{name}x"] = header.pop(name)
    elif how == "values":
        first, last = entry["data_offsets"]
        body[first:last] = random.bytes(last - first)
    elif how == "offsets":
        entry["data_offsets"] = [int(random.integers(0, len(body) + 99)) for _ in range(2)]
    else:
        header["__metadata__"] = {
            key: str(random.choice((*RAW, "{}", "[]", "1"))) for key in header.get("__metadata__", {"format": ""})
        }
    written = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(written)) + written + body)
    return f"{name} {how}"
