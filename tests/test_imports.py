"""The import rules, read from the sources; for each rule, a source text that breaks it and must be caught."""

import ast
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("fastdecode_lib", "ddgviz", "benchmarks")
AT_ROOT = 13
"""Modules that may lie loose in fastdecode_lib, its `__init__` included."""
LONG = 300
"""Lines of a file that needs no reason for being one."""

GROUND = {"core", "trace", "kernels", "lexicon", "store", "batching", "workers"}
PARTS = {"checkpoints", "projections", "models", "text", "drafts", "decoding"}
JOINTS = {"loading", "registry", "translation", "language_model", "hf"}
ABOVE = {"measuring", "contexts", "laws", "runners"}
TOP = {"training"}
LAYERS = {  # a part of the library: what of the library it may import besides itself and the ground
    **dict.fromkeys(GROUND, frozenset[str]()),
    "checkpoints": set(),
    "projections": set(),
    "models": {"checkpoints"},
    "text": {"checkpoints"},
    "drafts": {"checkpoints"},
    "decoding": {"drafts"},
    **dict.fromkeys(JOINTS, PARTS | JOINTS),
    **dict.fromkeys(ABOVE, PARTS | JOINTS | ABOVE),
    **dict.fromkeys(TOP, PARTS | JOINTS | ABOVE | TOP),
}
FRAMEWORK = {
    "run",
    "experiment",
    "catalogue",
    "outcomes",
    "reading",
    "making",
    "headlines",
    "page",
    "start_here",
    "shared",
}
"""What of `papers` every paper may import."""
HEAVY = {"torch", "transformers", "ctranslate2", "sacrebleu", "faiss"}
TORCH_MODULES = {  # they may import torch at the top, because they are themselves imported inside functions only
    f"fastdecode_lib.{module}"
    for module in (
        "kernels.products",
        "kernels.triton_gathered",
        "models.transformer",
        "models.graphs",
        "models.huggingface",
        "models.recurrent",
        "models.lstm_layer",
        "models.language",
        "projections.exact_torch",
        "projections.screen_torch",
        "laws.cases",
        "laws.decoders",
        "laws.models",
        "laws.projections",
        "laws.running",
        "laws.generate",
        "training.train",
        "training.run",
        "training.stacked_muon",
        "training.learner",
        "training.marian",
        "training.multi_token",
        "training.recurrent",
        "training.language",
        "training.draft_heads",
    )
}
TRANSFORMERS_MODULES = {"fastdecode_lib.laws.generate"}  # as above, for transformers: it derives from its classes
PICTURES = {"ddgviz", "plotly"}
NOT_IN_PICTURES = {"fastdecode_lib", *HEAVY}
CLOCKS = {"time", "perf_counter", "monotonic", "process_time", "thread_time"}
TIMERS = (
    "fastdecode_lib.measuring.referee",
    "fastdecode_lib.measuring.counting",
    "fastdecode_lib.decoding",
    "fastdecode_lib.training.run",
    "benchmarks.ddgviz",
)


class Import(NamedTuple):
    name: str
    line: int
    lazy: bool


def within(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


def imports(module: str, tree: ast.Module, is_package: bool = False) -> Iterator[Import]:
    """Every dotted name a module imports; lazy are those inside a function or for type checkers only."""

    def visit(node: ast.AST, lazy: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = module.split(".")
                parents = parts[: len(parts) - node.level + is_package]
                base = ".".join([*parents, base] if base else parents)
            yield from (Import(f"{base}.{alias.name}", node.lineno, lazy) for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            names = [argument.value for argument in node.args[:1] if isinstance(argument, ast.Constant)]
            yield from (Import(str(name), node.lineno, lazy) for name in names)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                yield from visit(child, True)
            children: list[ast.AST] = list(node.orelse)
        else:
            children = list(ast.iter_child_nodes(node))
        inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in children:
            yield from visit(child, inside)

    return visit(tree, False)


def clock_lines(tree: ast.Module) -> Iterator[int]:
    """Lines that read a clock of the module `time`, under whatever name it was imported."""
    aliases = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name == "time"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr.removesuffix("_ns") in CLOCKS:
            if isinstance(node.value, ast.Name) and node.value.id in aliases:
                yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            yield from (node.lineno for alias in node.names if alias.name.removesuffix("_ns") in CLOCKS)


def private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("_")


def private_here(tree: ast.Module) -> set[str]:
    """Names with a leading underscore that a file defines, on whatever level."""
    nodes = list(ast.walk(tree))
    names = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    return set(filter(private, names))


@cache
def private_anywhere() -> set[str]:
    return set[str]().union(*(private_here(ast.parse(path.read_text(encoding="utf-8"))) for path in sources()))


def private_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Names with a leading underscore that come from another file of ours: imported, or read off an object of it."""
    elsewhere = private_anywhere() - private_here(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".split(".")[0] in PACKAGES:
            yield from ((node.lineno, alias.name) for alias in node.names if private(alias.name))
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in elsewhere
            and ast.unparse(node.value) not in ("self", "cls")
        ):
            yield node.lineno, node.attr


def layer_broken(module: str, name: str) -> str:
    """The rule of layers that an import breaks; empty if none."""
    layer, part = f"{module}.".split(".")[1], f"{name}.".split(".")[1]
    if part == "cli" and layer != "cli":
        return "only the command line imports its commands"
    if part == "papers" and layer not in ("papers", "cli"):
        return "only the command line, benchmarks, notebooks and tests import papers"
    if layer in LAYERS and part not in {layer, "__version__"} | GROUND | LAYERS[layer]:
        return f"{layer} may not depend on it"
    if layer == part == "papers":
        own, other = f"{module}..".split(".")[2], f"{name}..".split(".")[2]
        if own not in ("combinations", "catalogue") and other not in FRAMEWORK | {own}:
            return "a paper knows nothing of another, nor what they share of any"
    return ""


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """What a module's source breaks, one sentence each."""
    tree = ast.parse(source)
    found = []
    library = within(module, "fastdecode_lib")
    command_line = within(module, "fastdecode_lib.cli")

    for name, line, lazy in imports(module, tree, is_package):
        root = name.split(".")[0]

        def broken(rule: str, line: int = line, name: str = name) -> None:
            found.append(f"{module}:{line} imports {name}: {rule}")

        if within(module, "ddgviz") and root in NOT_IN_PICTURES:
            broken("pictures know nothing of models")
        if root == "benchmarks" and not within(module, "benchmarks"):
            broken("nothing is built on benchmarks")
        if library and root == "fastdecode_lib":
            if rule := layer_broken(module, name):
                broken(rule)
            if not lazy and module not in TORCH_MODULES and any(within(name, heavy) for heavy in TORCH_MODULES):
                broken("it imports torch, so import it inside the function that uses it")
        if library and root in PICTURES and not (command_line and lazy):
            broken("the library draws nothing; the command line may, inside a function")
        allowed = {"torch": TORCH_MODULES, "transformers": TRANSFORMERS_MODULES}.get(root, set())
        if not within(module, "ddgviz") and root in HEAVY and not lazy and module not in allowed:
            broken("import it inside the function that uses it")

    if not within(module, "ddgviz") and not any(within(module, timer) for timer in TIMERS):
        found += [f"{module}:{line} reads a clock: only the referee and the decoders do" for line in clock_lines(tree)]
    found += [f"{module}:{line} uses {name}, which is private to another file" for line, name in private_names(tree)]
    if (
        library
        and len(source.splitlines()) > LONG
        and " because " not in (ast.get_docstring(tree) or "").split("\n")[0]
    ):
        found.append(f"{module} is longer than {LONG} lines: its first line must say why it is one idea (because ...)")
    return found


def circles(graph: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """Modules that import each other in a circle, each circle found once."""
    state: dict[str, bool] = {}
    found = []

    def visit(module: str, path: list[str]) -> None:
        state[module] = True
        for other in sorted(graph.get(module, ())):
            if state.get(other):
                found.append([*path[path.index(other) :], other])
            elif other not in state:
                visit(other, [*path, other])
        state[module] = False

    for module in sorted(graph):
        if module not in state:
            visit(module, [module])
    return found


def sources() -> list[Path]:
    return sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))


def named(path: Path) -> tuple[str, bool]:
    """A file's module, and whether it is a package."""
    names = path.relative_to(ROOT).with_suffix("").parts
    is_package = names[-1] == "__init__"
    return ".".join(names[:-1] if is_package else names), is_package


@cache
def graph() -> dict[str, set[str]]:
    """What each module imports when it is imported; of a name in a module, the module."""
    modules = {named(path)[0] for path in sources()}

    def home(name: str) -> str:
        while name and name not in modules:
            name = name.rpartition(".")[0]
        return name

    found = {}
    for path in sources():
        module, is_package = named(path)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found[module] = {home(name) for name, _, lazy in imports(module, tree, is_package) if not lazy} - {"", module}
    return found


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_sources_keep_the_import_rules(path: Path) -> None:
    module, is_package = named(path)
    assert violations(module, path.read_text(encoding="utf-8"), is_package) == []


def test_every_package_is_read() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in sources()} == set(PACKAGES)
    for module in TORCH_MODULES:
        assert module in graph(), f"{module} is listed here and does not exist"


def test_every_part_of_the_library_has_its_layer() -> None:
    parts = {module.split(".")[1] for module in graph() if module.startswith("fastdecode_lib.")}
    assert parts == {*LAYERS, "cli", "papers"}


def test_few_modules_lie_at_the_root() -> None:
    assert len(list((ROOT / "fastdecode_lib").glob("*.py"))) <= AT_ROOT


def test_no_import_goes_in_a_circle() -> None:
    assert circles(graph()) == []


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c", "b"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


LONG_SOURCE = "\n" * (LONG + 1)
BROKEN = [
    ("fastdecode_lib.models.x", "from fastdecode_lib.decoding.jacobi import Jacobi", "models may not depend"),
    ("fastdecode_lib.models.x", "from ..projections import exact_torch", "models may not depend"),
    ("fastdecode_lib.models", "from . import x\nfrom .. import projections", "models may not depend"),
    ("fastdecode_lib.models.x", "from fastdecode_lib.text.words import WordText", "models may not depend"),
    ("fastdecode_lib.projections.x", "def f():\n    import fastdecode_lib.models.transformer", "projections may not"),
    ("fastdecode_lib.projections.x", "from fastdecode_lib import decoding", "projections may not depend"),
    ("fastdecode_lib.decoding.x", "from fastdecode_lib.text.tokenizers import Tokenizer", "decoding may not depend"),
    ("fastdecode_lib.decoding.x", "import fastdecode_lib", "decoding may not depend"),
    ("fastdecode_lib.drafts.x", "from fastdecode_lib.decoding.window import Window", "drafts may not depend"),
    ("fastdecode_lib.checkpoints.x", "from fastdecode_lib.text import words", "checkpoints may not depend"),
    ("fastdecode_lib.core", "from fastdecode_lib.models import transformer", "core may not depend"),
    ("fastdecode_lib.store", "from fastdecode_lib import registry", "store may not depend"),
    (
        "fastdecode_lib.registry",
        "def f():\n    from fastdecode_lib.measuring.comparing import compare",
        "registry may not depend",
    ),
    ("fastdecode_lib.measuring.x", "from fastdecode_lib.training import presets", "measuring may not depend"),
    ("fastdecode_lib.training.x", "def f():\n    from fastdecode_lib import cli", "only the command line imports its"),
    ("fastdecode_lib.papers.making", "from fastdecode_lib.cli import common", "only the command line imports its"),
    (
        "fastdecode_lib.papers.sharp_models.x",
        "from fastdecode_lib.papers import combinations",
        "knows nothing of another",
    ),
    ("fastdecode_lib.papers.sharp_models", "from fastdecode_lib.papers.combinations import cube", "nothing of another"),
    ("fastdecode_lib.papers.shared.x", "from fastdecode_lib.papers.sharp_models import live", "nothing of another"),
    (
        "fastdecode_lib.papers.reading",
        "def f():\n    from fastdecode_lib.papers import sharp_models",
        "nothing of another",
    ),
    ("fastdecode_lib.papers.sharp_models.x", "from benchmarks import cpu", "nothing is built on benchmarks"),
    ("ddgviz.x", "from benchmarks import ddgviz", "nothing is built on benchmarks"),
    ("ddgviz.x", "def f():\n    import torch", "pictures know nothing"),
    ("ddgviz.x", "from transformers import MarianMTModel", "pictures know nothing"),
    ("ddgviz.x", "from fastdecode_lib.trace import Trace", "pictures know nothing"),
    ("fastdecode_lib.measuring.x", "def f():\n    import plotly.express", "the library draws nothing"),
    ("fastdecode_lib.translation", "import ddgviz", "the library draws nothing"),
    ("fastdecode_lib.cli.x", "from ddgviz import svg", "the library draws nothing"),
    ("fastdecode_lib.translation", "import torch", "inside the function"),
    ("fastdecode_lib.training.x", "import transformers", "inside the function"),
    ("benchmarks.x", "import ctranslate2", "inside the function"),
    (
        "fastdecode_lib.measuring.x",
        "try:\n    from sacrebleu import BLEU\nexcept ImportError:\n    pass",
        "inside the function",
    ),
    ("fastdecode_lib.projections.kmeans", "class A:\n    import faiss", "inside the function"),
    (
        "fastdecode_lib.measuring.x",
        "import importlib\nx = importlib.import_module('ctranslate2')",
        "inside the function",
    ),
    ("fastdecode_lib", "from fastdecode_lib.training.train import train", "it imports torch"),
    ("fastdecode_lib.models", "from .transformer import Transformer", "it imports torch"),
    (
        "fastdecode_lib.translation",
        "def f():\n    from fastdecode_lib import papers",
        "only the command line, benchmarks",
    ),
    ("fastdecode_lib.translation", "import time\nstart = time.perf_counter()", "reads a clock"),
    ("fastdecode_lib.papers.x", "import time as t\ndef f():\n    return t.monotonic_ns()", "reads a clock"),
    ("fastdecode_lib.models.x", "from time import perf_counter as now", "reads a clock"),
    ("benchmarks.x", "from time import perf_counter as now", "reads a clock"),
    ("fastdecode_lib.models.x", "from fastdecode_lib.core import _add_pieces", "private to another file"),
    ("fastdecode_lib.models.x", "def f(rows):\n    return rows._add_pieces", "private to another file"),
    ("fastdecode_lib.models.x", f'"""One idea."""{LONG_SOURCE}', "must say why it is one idea"),
    ("fastdecode_lib.models.x", f'"""One idea.\n\nIt is so because of that.\n"""{LONG_SOURCE}', "must say why"),
    ("fastdecode_lib.models.x", LONG_SOURCE, "must say why it is one idea"),
]


@pytest.mark.parametrize(("module", "source", "rule"), BROKEN)
def test_a_broken_rule_is_caught(module: str, source: str, rule: str) -> None:
    is_package = module in {"fastdecode_lib", "fastdecode_lib.models", "fastdecode_lib.papers.sharp_models"}
    assert any(rule in message for message in violations(module, source, is_package))


KEPT = [
    ("fastdecode_lib.models.x", "import numpy\nfrom fastdecode_lib.core import Model\nfrom ..checkpoints import shape"),
    ("fastdecode_lib.models.transformer", "import torch"),
    ("fastdecode_lib.decoding.x", "import time\nfrom .jacobi import Jacobi\nstart = time.perf_counter()"),
    ("fastdecode_lib.decoding.x", "from fastdecode_lib.drafts.table import DraftTable"),
    ("fastdecode_lib.translation", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
    ("fastdecode_lib.translation", "import time\ndef f():\n    import torch\n    time.sleep(1)"),
    ("fastdecode_lib.cli.x", "def f():\n    import ddgviz\n    from fastdecode_lib import papers, training"),
    (
        "fastdecode_lib.papers.sharp_models.x",
        "from fastdecode_lib import measuring\nfrom fastdecode_lib.papers import shared",
    ),
    ("fastdecode_lib.papers.combinations.x", "from fastdecode_lib.papers import sharp_models"),
    ("fastdecode_lib.papers.catalogue", "def f():\n    from fastdecode_lib.papers import sharp_models"),
    ("fastdecode_lib.models.x", "class A:\n    def f(self, other):\n        self._own = 1\n        return other._own"),
    ("fastdecode_lib.models.x", "def f(frame):\n    return frame._private_to_somebody_else"),
    ("fastdecode_lib.models.x", f'"""One idea, because it is."""{LONG_SOURCE}'),
    ("benchmarks.x", "from fastdecode_lib.papers import sharp_models"),
    ("ddgviz.x", "import numpy, networkx, plotly, anywidget\nfrom . import trace"),
]


@pytest.mark.parametrize(("module", "source"), KEPT)
def test_a_kept_rule_passes(module: str, source: str) -> None:
    assert violations(module, source) == []


@pytest.mark.parametrize(("package", "unwanted"), [("fastdecode_lib", HEAVY | PICTURES), ("ddgviz", NOT_IN_PICTURES)])
def test_importing_a_package_loads_nothing_heavy(package: str, unwanted: set[str]) -> None:
    command = f"import sys, {package}; print(*sorted({unwanted!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
