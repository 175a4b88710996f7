"""The import rules, read from the sources; for each rule, a source text that breaks it and must be caught."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]

FOUNDATION = {"core", "errors", "kernels", "lexicon", "draft_table", "draft_head", "int8_files", "store", "folding"}
LAYERS = {  # a part of the library: what of the library it may import besides itself and the foundation
    "models": {"text", "checkpoints", "transformers_private"},
    "projections": set(),
    "decoding": set(),
    **{part: set() for part in FOUNDATION},
}
HEAVY = {"torch", "transformers", "ctranslate2", "sacrebleu", "faiss"}
TORCH_MODULES = {  # they may import torch at the top, because they are themselves imported inside functions only
    "fastdecode_lib.kernels.products",
    "fastdecode_lib.models.transformer",
    "fastdecode_lib.models.huggingface",
    "fastdecode_lib.models.recurrent",
    "fastdecode_lib.models.lstm_layer",
    "fastdecode_lib.models.language",
    "fastdecode_lib.training_language",
    "fastdecode_lib.training_groups",
    "fastdecode_lib.projections.exact",
    "fastdecode_lib.projections.screen_torch",
    "fastdecode_lib.kernels.triton_gathered",
    "fastdecode_lib.learning",
    "fastdecode_lib.training",
    "fastdecode_lib.training_run",
    "fastdecode_lib.training_marian",
    "fastdecode_lib.training_recurrent",
    "fastdecode_lib.training_heads",
    "fastdecode_lib.training_drafts",
    "fastdecode_lib.checks",
    "fastdecode_lib.checks_generate",
}
TRANSFORMERS_MODULES = {"fastdecode_lib.checks_generate"}  # as above, for transformers: it derives from its classes
PICTURES = {"ddgviz", "plotly"}
NOT_IN_PICTURES = {"fastdecode_lib", *HEAVY}
CLOCKS = {"time", "perf_counter", "monotonic", "process_time", "thread_time"}
TIMERS = ("fastdecode_lib.measure", "fastdecode_lib.decoding", "fastdecode_lib.training_run")


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


def violations(module: str, source: str, is_package: bool = False) -> list[str]:
    """What a module's source breaks, one sentence each."""
    tree = ast.parse(source)
    found = []
    library = within(module, "fastdecode_lib")
    command_line = module == "fastdecode_lib.cli"
    layer = f"{module}.".split(".")[1] if library else ""

    for name, line, lazy in imports(module, tree, is_package):
        root, part = f"{name}.".split(".")[:2]

        def broken(rule: str, line: int = line, name: str = name) -> None:
            found.append(f"{module}:{line} imports {name}: {rule}")

        if not library and root in NOT_IN_PICTURES:
            broken("pictures know nothing of models")
        if library and root == "fastdecode_lib":
            if layer in LAYERS and part not in {layer} | FOUNDATION | LAYERS[layer]:
                broken(f"{layer} may not depend on it")
            if part == "experiments" and layer not in {"experiments", "cli", "cli_experiment"}:
                broken("only notebooks, tests and the command line import experiments")
            if not lazy and module not in TORCH_MODULES and any(within(name, heavy) for heavy in TORCH_MODULES):
                broken("it imports torch, so import it inside the function that uses it")
        if library and root in PICTURES and not (command_line and lazy):
            broken("the library draws nothing; the command line may, inside a function")
        allowed = {"torch": TORCH_MODULES, "transformers": TRANSFORMERS_MODULES}.get(root, set())
        if library and root in HEAVY and not lazy and module not in allowed:
            broken("import it inside the function that uses it")

    if library and not any(within(module, timer) for timer in TIMERS):
        found += [f"{module}:{line} reads a clock: only the referee and the decoders do" for line in clock_lines(tree)]
    return found


def sources() -> list[Path]:
    return sorted(path for package in ("fastdecode_lib", "ddgviz") for path in (ROOT / package).rglob("*.py"))


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_sources_keep_the_import_rules(path: Path) -> None:
    names = path.relative_to(ROOT).with_suffix("").parts
    is_package = names[-1] == "__init__"
    module = ".".join(names[:-1] if is_package else names)
    assert violations(module, path.read_text(encoding="utf-8"), is_package) == []


def test_both_packages_are_read() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in sources()} == {"fastdecode_lib", "ddgviz"}
    for module in TORCH_MODULES:
        assert (ROOT / module.replace(".", "/")).with_suffix(".py").exists(), (
            f"{module} is listed here and does not exist"
        )


BROKEN = [
    ("fastdecode_lib.models.x", "from fastdecode_lib.decoding.jacobi import Jacobi", "models may not depend"),
    ("fastdecode_lib.models.x", "from ..projections import exact", "models may not depend"),
    ("fastdecode_lib.models", "from . import x\nfrom .. import projections", "models may not depend"),
    ("fastdecode_lib.projections.x", "def f():\n    import fastdecode_lib.models.transformer", "projections may not"),
    ("fastdecode_lib.projections.x", "from fastdecode_lib import decoding", "projections may not depend"),
    ("fastdecode_lib.decoding.x", "from fastdecode_lib.text import Text", "decoding may not depend"),
    ("fastdecode_lib.decoding.x", "import fastdecode_lib", "decoding may not depend"),
    ("fastdecode_lib.core", "from fastdecode_lib.models import load", "core may not depend"),
    ("ddgviz.x", "def f():\n    import torch", "pictures know nothing"),
    ("ddgviz.x", "from transformers import MarianMTModel", "pictures know nothing"),
    ("ddgviz.x", "from fastdecode_lib.core import Trace", "pictures know nothing"),
    ("fastdecode_lib.measure", "def f():\n    import plotly.express", "the library draws nothing"),
    ("fastdecode_lib.translation", "import ddgviz", "the library draws nothing"),
    ("fastdecode_lib.cli", "from ddgviz import svg", "the library draws nothing"),
    ("fastdecode_lib.translation", "import torch", "inside the function"),
    ("fastdecode_lib.training", "import transformers", "inside the function"),
    (
        "fastdecode_lib.measure",
        "try:\n    from sacrebleu import BLEU\nexcept ImportError:\n    pass",
        "inside the function",
    ),
    ("fastdecode_lib.projections.kmeans", "class A:\n    import faiss", "inside the function"),
    ("fastdecode_lib.baselines", "import importlib\nx = importlib.import_module('ctranslate2')", "inside the function"),
    ("fastdecode_lib", "from fastdecode_lib.training import train", "it imports torch"),
    ("fastdecode_lib.models", "from .transformer import Transformer", "it imports torch"),
    ("fastdecode_lib.translation", "def f():\n    from fastdecode_lib import experiments", "only notebooks"),
    ("fastdecode_lib.translation", "import time\nstart = time.perf_counter()", "reads a clock"),
    ("fastdecode_lib.experiments.x", "import time as t\ndef f():\n    return t.monotonic_ns()", "reads a clock"),
    ("fastdecode_lib.models.x", "from time import perf_counter as now", "reads a clock"),
]


@pytest.mark.parametrize(("module", "source", "rule"), BROKEN)
def test_a_broken_rule_is_caught(module: str, source: str, rule: str) -> None:
    is_package = module in {"fastdecode_lib", "fastdecode_lib.models"}
    assert any(rule in message for message in violations(module, source, is_package))


KEPT = [
    ("fastdecode_lib.models.x", "import numpy\nfrom fastdecode_lib.core import Model\nfrom ..text import Text"),
    ("fastdecode_lib.models.transformer", "import torch"),
    ("fastdecode_lib.decoding.x", "import time\nfrom .jacobi import Jacobi\nstart = time.perf_counter()"),
    ("fastdecode_lib.translation", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
    ("fastdecode_lib.translation", "import time\ndef f():\n    import torch\n    time.sleep(1)"),
    ("fastdecode_lib.cli", "def f():\n    import ddgviz\n    from fastdecode_lib import experiments, training"),
    ("fastdecode_lib.experiments.x", "from fastdecode_lib import experiments, measure"),
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
