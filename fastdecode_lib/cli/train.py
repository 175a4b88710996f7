"""The command that trains our models, one after another or side by side."""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from fastdecode_lib.cli.common import UsageError, at_low_priority, print_table

LOG = "train.log"
"""File with the output of a run that --jobs trains, in the folder of the run."""


def add_commands(commands: Any) -> None:
    """Add ``train`` to the commands."""
    train = commands.add_parser("train", help="train our models, or continue training them")
    train.add_argument("names", nargs="*", metavar="NAME", help="such as tatoeba-small; without any, they are listed")
    train.add_argument("--data", metavar="DIR", help="the corpus folder (default: FASTDECODE_DATA)")
    train.add_argument("--folder", default="build/train", help="checkpoints (default: build/train)")
    train.add_argument("--device", default="cpu", help="auto, cpu, cuda or cuda:N (default: cpu)")
    train.add_argument("--threads", type=int, help="threads of torch (default: 2, if there are as many; 1 with --jobs)")
    train.add_argument(
        "--jobs", type=int, default=1, help="models trained side by side, each in a process of its own (default: 1)"
    )
    train.add_argument("--seed", type=int, help="default: the preset's own, mostly 1")
    train.add_argument("--updates", type=int, help="planned length of the run; a larger number extends an earlier run")
    train.add_argument("--stop-at", type=int, metavar="UPDATE", help="stop at this update, to be continued later")
    train.add_argument(
        "--begin-with", metavar="MODEL", help="a model of the same shape and vocabulary, as load takes it, to train on"
    )
    instead = train.add_mutually_exclusive_group()
    instead.add_argument(
        "--bundle", action="store_true", help="do not train: score the best checkpoint and put it into the assets"
    )
    instead.add_argument(
        "--keep", action="store_true", help="like --bundle, but into the folder weights/ of a checkout"
    )
    instead.add_argument(
        "--score", action="store_true", help="do not train: score the shipped weights again on the test split"
    )
    train.set_defaults(run=_train)
    fetch = commands.add_parser("fetch", help="download trained weights that the manifest has an address for")
    fetch.add_argument("names", nargs="*", metavar="NAME", help="without any, all trained weights are listed")
    fetch.set_defaults(run=_fetch)


def _train(options: argparse.Namespace) -> int:
    from fastdecode_lib.checkpoints import weights
    from fastdecode_lib.training import bundling, manifest
    from fastdecode_lib.training import train as training

    if not options.names:
        if options.bundle or options.keep or options.score or options.updates is not None or options.seed is not None:
            raise UsageError(
                "Which model? --bundle, --keep, --score, --updates and --seed belong to names: got none. See fastdecode train."
            )
        _list_presets(options.folder)
    if options.jobs < 1:
        raise UsageError(f"--jobs counts processes: got {options.jobs}. Use 1 or more.")
    at_low_priority()
    if options.jobs > 1:
        if options.bundle or options.keep or options.score:
            raise UsageError(
                "--jobs trains models: got --bundle, --keep or --score, which score those that are trained. Leave it out."
            )
        return _side_by_side(options)
    for name in options.names:
        if options.score:
            print_table([{"model": name} | row for row in bundling.score_again(name, data=options.data)])
            continue
        if options.bundle or options.keep:
            target = bundling.bundle(name, data=options.data, folder=options.folder, keep=options.keep)
            if (weights.FOLDER / weights.MANIFEST).is_file():  # a checkout, not an installed library
                manifest.refresh()
            print(f"{name}: {'kept' if options.keep else 'bundled'} in {target}")
            continue
        path = training.train(
            name,
            data=options.data,
            folder=options.folder,
            device=options.device,
            threads=options.threads or min(2, os.cpu_count() or 1),
            seed=options.seed,
            updates=options.updates,
            stop_at=options.stop_at,
            begin_with=options.begin_with,
        )
        outcome = f"the best checkpoint is in {path}" if path.is_dir() else "stopped before the first evaluation"
        print(f"{name}: {outcome}")
    return 0


def _side_by_side(options: argparse.Namespace) -> int:
    """Train each model in a process of its own, a teacher before the models that learn from it; return 1 if one failed."""
    from fastdecode_lib.training.presets import PRESETS

    shared = ("data", "folder", "device", "seed", "updates", "stop_at", "begin_with")
    flags = [f"--{k.replace('_', '-')}={value}" for k in shared if (value := getattr(options, k)) is not None]
    if unknown := [name for name in options.names if name not in PRESETS]:
        raise UsageError(f"Unknown model to train: got {', '.join(unknown)}. Use {', '.join(PRESETS)}.")
    teachers = {name: getattr(PRESETS[name], "teacher", "") for name in options.names}
    previous_handler = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    waiting, running, failed = list(teachers), dict[str, Any](), list[str]()
    try:
        while waiting or running:
            for name in list(waiting):
                if teachers[name] in failed:
                    waiting.remove(name)
                    failed.append(name)
                    print(f"{name}: not begun, since its teacher {teachers[name]} failed", file=sys.stderr)
                elif len(running) < options.jobs and teachers[name] not in (*waiting, *running):
                    waiting.remove(name)
                    running[name] = _start(name, Path(options.folder), [*flags, f"--threads={options.threads or 1}"])
                    print(f"{name}: begun, see {Path(options.folder) / name / LOG}", flush=True)
            for name, process in list(running.items()):
                if process.poll() is not None:
                    log = Path(options.folder) / name / LOG
                    del running[name]
                    if process.returncode:
                        failed.append(name)
                    print(f"{name}: {'failed' if process.returncode else 'trained'}, see {log}", flush=True)
            time.sleep(0.2)
    finally:
        for process in running.values():
            process.terminate()  # children of a shell's background job ignore interrupts
        for process in running.values():
            process.wait()
        signal.signal(signal.SIGTERM, previous_handler)
    return int(bool(failed))


def _start(name: str, folder: Path, options: list[str]) -> "subprocess.Popen[bytes]":
    """Start a process that trains one model and appends its output to the log of the run."""
    (folder / name).mkdir(parents=True, exist_ok=True)
    with (folder / name / LOG).open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "fastdecode_lib.cli", "train", name, *options],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip


def _fetch(options: argparse.Namespace) -> int:
    from fastdecode_lib.checkpoints import weights
    from fastdecode_lib.checkpoints.hub import bundled

    if not (weights.FOLDER / weights.MANIFEST).is_file():
        raise UsageError(
            f"Weights are fetched into a checkout of the project, whose weights/ has a manifest: got {weights.FOLDER}. Clone the "
            "project, or train the model: fastdecode train NAME"
        )
    for name in options.names:
        print(f"{name} is in {bundled().get(name) or weights.fetch(name)}")
    if not options.names:
        print_table(
            [
                {
                    "name": record.name,
                    "fingerprint": record.fingerprint,
                    "where": record.where
                    if record.where != weights.NOT_SHIPPED or not record.address
                    else record.address,
                    "MB": f"{record.bytes / 1e6:.1f}" if record.bytes else "-",
                    "hours": "-" if record.hours is None else f"{record.hours:.1f}",
                    "results": len(record.results),
                }
                for record in weights.read_manifest()
            ]
        )
    return 0


def _list_presets(folder: str) -> None:
    from fastdecode_lib.checkpoints.hub import bundled
    from fastdecode_lib.checkpoints.weights import find_weights
    from fastdecode_lib.training.presets import PRESETS

    rows = []
    for name, preset in PRESETS.items():
        begun = "begun" if (Path(folder) / name).is_dir() else "-"
        stored = "kept" if find_weights(name) else begun
        state = "trained here" if preset.trained(folder) else "bundled" if name in bundled() else stored
        directions = " ".join("-".join(pair) for pair in preset.directions) or "en"
        rows.append(
            {"name": name, "kind": preset.kind, "languages": directions, "updates": preset.updates, "state": state}
        )
    print_table(rows)
