"""A tiny model and everything that commands make of it, and running a command in a process of its own."""

import contextlib
import importlib
import io
import json
import math
import os
import resource
import signal
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import fakes
import numpy as np

from fastdecode_lib import cli
from fastdecode_lib.training.presets import PRESETS, Preset

OURS = tuple(str(Path(__file__).resolve().parents[2] / name) for name in ("fastdecode_lib", "ddgviz"))
"""Where a clear error is raised."""
SECONDS, GIGABYTES = 180, 3.0
"""Bounds of one command; commands here take a few seconds, and half a minute on a machine that is busy."""
command_line = importlib.import_module("fastdecode_lib.cli.main")
VOLATILE = {"seconds", "date", "processor_seconds", "created", "host", "commit", "command", "load", "path", "folder"}
"""What a result says of the run that made it."""
MICRO = Preset(
    name="micro", directions=(("en", "de"), ("de", "en")), vocabulary=60, encoder_layers=1, decoder_layers=1, width=16, heads=2,
    feed_forward=24, max_positions=48, tokens_per_update=400, warm_up=4, evaluate_every=4, updates=12, dev_single=4, dev_joined=2,
)  # fmt: skip


@dataclass(frozen=True)
class Command:
    """A command line and where it writes, both relative to the folder it is run in."""

    name: str
    line: str
    writes: tuple[str, ...]

    def work(self) -> int:
        """Run it here."""
        return cli.main(self.line.split())


TEXT = "--source text.txt --from en --to de"
COMMANDS = (
    Command("train", "train micro --data corpus --folder runs --threads 1", ("runs",)),
    Command("record", f"record --model model {TEXT} --top 3 --out contexts", ("contexts",)),
    Command("fit", "fit clustered --contexts contexts --model model --clusters 6 --top 2", ("model/projections",)),
    Command(
        "draft-table",
        f"draft-table --model model {TEXT} --least 1 --folder work --out model/draft-tables",
        ("work", "model/draft-tables"),
    ),
    Command(
        "draft-head",
        f"draft-head --model model {TEXT} --updates 3 --vocabulary 40 --folder head --out model/draft-head.safetensors",
        ("head", "model/draft-head.safetensors"),
    ),
    Command(
        "evaluate",
        f"evaluate --model model {TEXT} --decoder greedy --decoder window --folder kept --json table.json",
        ("table.json",),
    ),
    Command(
        "translate",
        "translate --model model --from en --to de --decoder window --json out.json --svg out.svg --html out.html "
        "--trace out.trace.json Hello",
        ("out.json", "out.svg", "out.html", "out.trace.json"),
    ),
)


def prepare(folder: Path) -> Path:
    """A folder with a tiny model, text and a corpus."""
    folder.mkdir(parents=True)
    fakes.write_marian(folder / "model", fakes.train_sentencepiece(folder))
    fakes.write_corpus(folder / "corpus")
    words = " ".join(fakes.own_sentences()["en"]).split()
    lines = [" ".join(words[start : start + 4]) for start in range(0, 260, 4)]
    (folder / "text.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@dataclass(frozen=True)
class Outcome:
    """What came of a command.

    Attributes
    ----------
    kind : str
        ``"done"``; ``"refused"``, by an error of ours; ``"foreign"``, by another library's, shown as it is;
        ``"traceback"``; ``"hang"``; ``"memory"``; ``"killed"``; ``"interrupted"``, with its exit status.
    message : str
        Of the error, with the place where it was raised.
    """

    kind: str
    message: str = ""


@dataclass(frozen=True)
class Child:
    """A process that does something in a folder, and where it tells what came of it."""

    number: int
    answer: int


def begin(
    folder: Path, work: Callable[[], int], largest_file: int | None = None, disk: Callable[[Path], None] | None = None
) -> Child:
    """Do something in a process of its own, within bounds on memory and, if given, on the bytes of a file.

    `disk` alters the file system of the folder for that process; see `soak.disks`.
    """
    read, write = os.pipe()
    number = os.fork()
    if number == 0:
        try:
            os.close(read)
            signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started without it
            if largest_file is not None:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
            if disk is not None:
                disk(folder)
            said = json.dumps(_inside(folder, work)).encode()
            os.write(write, said)
        finally:
            os._exit(0)
    os.close(write)
    return Child(number, read)


def finish(child: Child, seconds: float = math.inf, by: int = signal.SIGKILL) -> Outcome:
    """Wait for a process, and after some seconds send it a signal; what does not end at all is a hang."""
    began, sent, limit = time.monotonic(), False, SECONDS
    while os.waitpid(child.number, os.WNOHANG) == (0, 0):
        passed = time.monotonic() - began
        if passed > seconds and not sent:
            os.kill(child.number, by)
            sent = True
        if passed > limit:
            os.kill(child.number, signal.SIGKILL)
            os.waitpid(child.number, 0)
            os.close(child.answer)
            return Outcome("hang")
        time.sleep(0.01)
    with open(child.answer, encoding="utf-8") as answer:
        said = answer.read()
    if said:
        return Outcome(*json.loads(said))
    return Outcome("killed") if sent and by == signal.SIGKILL else Outcome("traceback", "the process died")


def run(folder: Path, work: Callable[[], int]) -> Outcome:
    """Do something in a process of its own, to its end."""
    return finish(begin(folder, work))


def _inside(folder: Path, work: Callable[[], int]) -> tuple[str, str]:
    """In the child: do it, and say what kind of end it came to."""
    seen: list[BaseException] = []
    shown = command_line.one_line

    def noted(error: Exception) -> str:
        seen.append(error)
        return shown(error)

    command_line.one_line = noted
    os.chdir(folder)
    PRESETS[MICRO.name] = MICRO
    room = _address_space() + int(GIGABYTES * 1e9)
    resource.setrlimit(resource.RLIMIT_AS, (room, room))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        try:
            status = work()
        except MemoryError:
            return "memory", ""
        except KeyboardInterrupt:  # before the command began or after it ended
            status = 130
        except BaseException as error:
            seen.append(error)
            status = 2
    if status in (0, 130):
        return ("done" if status == 0 else "interrupted"), ""
    if not seen:
        return "refused", errors.getvalue().strip()
    error = seen[-1]
    place = traceback.extract_tb(error.__traceback__)[-1]
    message = f"{type(error).__name__}: {error} ({place.filename}:{place.lineno})"[:600]
    if isinstance(error, MemoryError) or "allocate memory" in str(error):
        return "memory", message
    if not isinstance(error, ValueError | OSError | RuntimeError):
        return "traceback", message
    return ("refused" if place.filename.startswith(OURS) else "foreign"), message


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def command(folder: Path, command: Command) -> Outcome:
    """Run a command in a folder, to its end."""
    return run(folder, command.work)


def contents(folder: Path, places: tuple[str, ...]) -> dict[str, object]:
    """What lies in some places, but for what says when it was made; hidden files too."""
    found: dict[str, object] = {}
    for place in places:
        root = folder / place
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            if path.is_file():
                found[str(path.relative_to(folder))] = _content(path)
    return found


def _content(path: Path) -> object:
    if path.parent.suffix == ".part":  # half written
        return path.read_bytes()
    if path.suffix == ".json":
        return _steady(json.loads(path.read_text(encoding="utf-8")))
    if path.suffix == ".safetensors":
        from safetensors.numpy import load_file

        return {name: tensor.tobytes() for name, tensor in load_file(path).items()}
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: arrays[name].tobytes() for name in arrays}
    return None if path.suffix in (".html", ".svg") or path.name == "lock" else path.read_bytes()  # with random ids


def _steady(content: object) -> object:
    if isinstance(content, dict):
        return {key: _steady(value) for key, value in content.items() if key not in VOLATILE}
    return [_steady(value) for value in content] if isinstance(content, list) else content
