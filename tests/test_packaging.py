"""The files that describe the package agree with each other and with the tree."""

import glob
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
CONDA_NAMES = {"pytorch": "torch"}


@pytest.fixture(scope="module")
def pyproject() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def requirements(lines: list[str]) -> dict[str, SpecifierSet]:
    parsed = [Requirement(line) for line in lines]
    return {canonicalize_name(CONDA_NAMES.get(r.name, r.name)): r.specifier for r in parsed}


def extra(name: str, pyproject: dict) -> list[str]:
    """What an extra installs, with the extras that it names."""
    lines = []
    for line in pyproject["project"]["optional-dependencies"][name]:
        requirement = Requirement(line)
        named = sorted(requirement.extras) if requirement.name == "fastdecode" else []
        lines += [inner for other in named for inner in extra(other, pyproject)] if named else [line]
    return list(dict.fromkeys(lines))


def pins() -> dict[str, SpecifierSet]:
    return requirements((ROOT / "constraints.txt").read_text(encoding="utf-8").split())


def test_environment_has_every_dependency_in_the_same_range(pyproject: dict) -> None:
    entries = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    conda = [entry for entry in entries if isinstance(entry, str)]
    pip = [line for entry in entries if isinstance(entry, dict) for line in entry["pip"]]
    environment = requirements(
        [line for line in [*conda, *pip] if not line.startswith(("--", "python ", "pip", "make"))]
    )
    assert environment == requirements([*pyproject["project"]["dependencies"], *extra("app", pyproject)])
    assert "--editable ." in pip


def test_environment_has_the_python_of_pyproject(pyproject: dict) -> None:
    entries = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))["dependencies"]
    python = next(entry for entry in entries if isinstance(entry, str) and entry.startswith("python "))
    assert SpecifierSet(pyproject["project"]["requires-python"]).contains(python.split("=")[-1])
    assert pyproject["tool"]["mypy"]["python_version"] == python.split("=")[-1]


def test_constraints_pin_every_direct_dependency_within_its_range(pyproject: dict) -> None:
    project = pyproject["project"]
    names = [name for name in project["optional-dependencies"] if name != "baselines"]  # never in CI
    for lines in [project["dependencies"], *(extra(name, pyproject) for name in names)]:
        for name, allowed in requirements(lines).items():
            assert name in pins(), f"{name} is not in constraints.txt"
            (pin,) = pins()[name]
            assert pin.operator == "=="
            assert pin.version in allowed, f"constraints.txt has {name} {pin.version}, pyproject.toml wants {allowed}"


def test_ranges_have_both_ends(pyproject: dict) -> None:
    for name, allowed in requirements(pyproject["project"]["dependencies"]).items():
        assert {spec.operator for spec in allowed} == {">=", "<"}, name


@pytest.mark.parametrize("package", ["fastdecode_lib", "ddgviz"])
def test_package_data_covers_every_file(pyproject: dict, package: str) -> None:
    patterns = pyproject["tool"]["setuptools"]["package-data"][package]
    folder = ROOT / package
    shipped = {name for pattern in patterns for name in glob.glob(str(folder / pattern), recursive=True)}
    hidden = {"__pycache__", ".ipynb_checkpoints"}
    files = {str(p) for p in folder.rglob("*") if p.is_file() and p.suffix != ".py" and not hidden & set(p.parts)}
    assert sorted(files - shipped) == []


def test_every_folder_with_modules_is_a_package() -> None:
    folders = {path.parent for package in ("fastdecode_lib", "ddgviz") for path in (ROOT / package).rglob("*.py")}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []


COMPARED = "nbval-check-output"


def test_notebooks_keep_the_outputs_that_are_compared() -> None:
    compared = 0
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
            if COMPARED in cell["metadata"].get("tags", []):
                assert cell.get("outputs") and cell["execution_count"], (
                    f"{path.name}, cell {number}: nbval needs its output"
                )
                compared += 1
    assert compared >= 5


WITHOUT_EXTRAS = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def without_extras(pyproject: dict, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code where no package of an extra can be imported."""
    modules = {"faiss-cpu": "faiss", "pillow": "PIL", "pyyaml": "yaml", "pytest-xdist": "xdist"}
    names = {
        name
        for extra_ in pyproject["project"]["optional-dependencies"]
        for name in requirements(extra(extra_, pyproject))
    }
    absent = {modules.get(name, name) for name in names} - {"packaging", "yaml"}  # transformers needs both
    assert {"faiss", "sacrebleu", "plotly", "anywidget", "networkx", "scipy", "jupyterlab", "PIL"} <= absent
    prepared = WITHOUT_EXTRAS.format(absent=absent) + code
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, "-c", prepared], cwd=folder, env=environment, capture_output=True, text=True)


def test_without_any_extra_it_translates_and_saves_a_picture(pyproject: dict, tmp_path: Path) -> None:
    done = without_extras(
        pyproject,
        "import ddgviz, fastdecode_lib\n"
        "model = fastdecode_lib.load('tatoeba-small')\n"
        "done = fastdecode_lib.translate(model, 'Good morning.', source='en', target='de', decoder='gauss_seidel:block=3')\n"
        "for name in ('picture.svg', 'picture.html', 'picture.tex'):\n"
        "    ddgviz.save(done.trace, name)\n"
        "print(done.text)\n",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() and (tmp_path / "picture.svg").read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize(
    ("code", "package", "name"),
    [
        ("import ddgviz; ddgviz.show", "anywidget", "viz"),
        ("import ddgviz; ddgviz.curves", "plotly", "viz"),
        ("import ddgviz; ddgviz.explore", "ipywidgets", "viz"),
        ("import ddgviz; ddgviz.to_networkx(TRACE)", "networkx", "viz"),
        (
            "from fastdecode_lib.projections.kmeans import *; import numpy; kmeans(numpy.zeros((4, 2)), 2)",
            "faiss",
            "projections",
        ),
        ("from fastdecode_lib.measuring.quality import quality; quality(['a'], ['a'])", "sacrebleu", "evaluation"),
        ("from fastdecode_lib.workers import check_workers; check_workers(2, None)", "dask", "dask"),
    ],
)
def test_a_missing_extra_is_named(code: str, package: str, name: str, pyproject: dict, tmp_path: Path) -> None:
    trace = ROOT / "tests" / "ddgviz" / "traces"
    code = code.replace(
        "TRACE",
        repr(
            str(
                next(
                    iter(
                        sorted(trace.glob("*.json")),
                    ),
                    trace,
                )
            )
        ),
    )
    done = without_extras(pyproject, code, tmp_path)
    assert done.returncode == 1
    said = f"package {package}, which is not installed. Install it with: pip install 'fastdecode[{name}]'"
    assert said in done.stderr.splitlines()[-1]


def test_console_script_exists(pyproject: dict) -> None:
    module, function = pyproject["project"]["scripts"]["fastdecode"].split(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_the_version_is_the_same_everywhere(pyproject: dict) -> None:
    version = pyproject["project"]["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    changes = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert (citation["version"], changes[0]) == (version, version)
    assert citation["license"] == pyproject["project"]["license"]


def test_the_citation_names_the_five_papers_and_the_data() -> None:
    references = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))["references"]
    assert sorted(reference["type"] for reference in references) == ["conference-paper"] * 5 + ["data"]
    for reference in references:
        assert reference["title"] and reference["authors"] and reference["year"]


def targets() -> list[str]:
    return re.findall(r"^([a-z%-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def make(*arguments: str) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_makefile() -> None:
    listed = make()
    assert {"lab", "test", "figures", "train", "clean"} <= set(targets())
    for target in targets():
        assert f"make {target} " in listed
        assert make("--dry-run", target)
    steps = make("--dry-run", "test")
    order = [steps.index(step) for step in ("ruff check", "mypy", "-m pytest", "--nbval-lax")]
    assert order == sorted(order)
    assert "torch==1.2.3" in make("--dry-run", "install", "TORCH=1.2.3")
    assert make("--dry-run", "lab", "LAB_ARGS=--no-browser").rstrip().endswith("--no-browser")
    assert "-m pytest -k greedy" in make("--dry-run", "tests", "TEST_ARGS=-k greedy")
    assert "! -name train" in make("--dry-run", "clean")
    assert "! -name train" not in make("--dry-run", "clean", "ALL=1")


def test_the_versions_of_transformers_tested_are_the_oldest_and_the_pinned_one(pyproject: dict) -> None:
    from fastdecode_lib.checkpoints.transformers_private import TESTED

    (wanted,) = [r for r in map(Requirement, pyproject["project"]["dependencies"]) if r.name == "transformers"]
    (pinned,) = re.findall(r"^transformers==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned in TESTED and all(version in wanted.specifier for version in TESTED)
    oldest = next(Version(s.version) for s in wanted.specifier if s.operator == ">=")
    assert Version(TESTED[0]) == oldest and sorted(map(Version, TESTED)) == list(map(Version, TESTED))
    assert f"under transformers {TESTED[0]} {pinned} newest" in make("--dry-run", "test-versions")


def test_sizes():
    """The bundled model under 21 MB, its draft tables under 5, its head and screens under 3, all under 56, each file under 15."""
    assets = ROOT / "fastdecode_lib" / "assets"
    sizes = {p: p.stat().st_size for p in assets.rglob("*") if p.is_file()}
    assert sum(sizes.values()) < 56e6
    model = {p: size for p, size in sizes.items() if "tatoeba-small" in p.parts}
    tables = sum(size for p, size in model.items() if "draft-tables" in p.parts)
    assert 1e6 < tables < 5e6
    head = sum(size for p, size in model.items() if p.name == "draft-head.safetensors")
    assert 1e6 < head < 2e6
    screens = sum(size for p, size in model.items() if "projections" in p.parts)
    assert 1e6 < screens < 3e6
    assert 1e6 < sum(model.values()) - tables - head - screens < 21e6
    assert max(sizes.values()) < 15e6


def test_no_two_files_of_tests_bear_one_name() -> None:
    """Helpers are imported by their stems: the second of a name would be the first."""
    found = [
        path.name for path in Path(__file__).parent.rglob("*.py") if path.name not in ("conftest.py", "__init__.py")
    ]
    assert len(found) == len(set(found)), sorted(name for name in set(found) if found.count(name) > 1)
