"""The command that writes every figure and every table in all formats."""

import argparse
import hashlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastdecode_lib.cli.common import has_browser, one_line


def add_commands(commands: Any) -> None:
    """Add ``figures``."""
    figures = commands.add_parser("figures", help="write all figures and tables of the bundled results in all formats")
    figures.add_argument("--out", default="build/figures", metavar="DIR", help="default: build/figures")
    figures.add_argument("--scale", default="laptop", help="tiny, laptop or paper (default: laptop)")
    figures.add_argument("--make", action="store_true", help="also run experiments that have no result yet (long)")
    figures.add_argument(
        "--pages", action="store_true", help="write the pages of results and their charts into docs/results instead"
    )
    figures.set_defaults(run=_figures)


def _figures(options: argparse.Namespace) -> int:
    if options.pages:
        return _pages()
    from fastdecode_lib.papers.catalogue import experiments
    from fastdecode_lib.papers.outcomes import NoResult
    from fastdecode_lib.papers.run import Scale
    from fastdecode_lib.text.corpus import CorpusNotFound

    scale, folder, browser = Scale.of(options.scale), Path(options.out), has_browser()
    folder.mkdir(parents=True, exist_ok=True)
    traces: dict[str, Any] = {}
    paths: list[Path] = []
    catalogue = experiments()
    for number, (name, e) in enumerate(catalogue.items(), 1):
        print(f"fastdecode: {number} of {len(catalogue)}, {name}", file=sys.stderr, flush=True)
        try:
            frame = _result(e, scale, make=options.make or scale is Scale.TINY)
        except (CorpusNotFound, NoResult) as error:
            print(f"fastdecode: {name} is left out. {one_line(error)}", file=sys.stderr)
            continue
        stem = folder / f"{name}.{scale}"
        paths += [*_write_tables(e, frame, stem, str(scale)), *_draw(e, frame, stem, browser)]
        traces |= {f"{name}.{label}": trace for label, trace in frame.attrs.get("traces", {}).items()}
    paths += _draw_passes(traces | _passes_of_all_decoders(), folder, browser)
    print(_write_index(folder, paths))
    return 0


def _draw(e: Any, frame: Any, stem: Path, browser: bool) -> list[Path]:
    """Draw the charts of a table; without a browser, as HTML pages only."""
    import ddgviz
    from ddgviz.figures import frontier

    figures: dict[Path, Any] = {}
    if e.chart and len(rows := e.chart.rows(frame)):  # without rows, all are gaps
        figures[stem] = ddgviz.curves(rows, **e.chart.settings)
    if e.compares:
        figures[stem] = ddgviz.speed_accuracy(frame)
        if frame.get("bleu") is not None and frame["bleu"].notna().any():
            figures[stem.with_name(f"{stem.name}.frontier")] = frontier(frame)
    paths_written: list[Path] = []
    for path, figure in figures.items():
        try:
            paths = ddgviz.save_chart(figure, path)
        except ValueError:
            if browser:
                raise
            paths = [Path(f"{path}.html")]
        print(*paths, sep="\n")
        paths_written += map(Path, paths)
    return paths_written


def _passes_of_all_decoders() -> dict[str, Any]:
    """The traces of a sentence under each decoder, by the stems of their files."""
    from fastdecode_lib.loading import load
    from fastdecode_lib.runners import DECODERS
    from fastdecode_lib.text.sentences import SENTENCES
    from fastdecode_lib.translation import translate

    model, sentence = load(), SENTENCES[-1][0]
    translations = {
        decoder: translate(model, sentence, source="en", target="de", decoder=decoder, verify=True)
        for decoder in DECODERS
    }
    return {f"passes.{decoder.partition(':')[0]}": translation.trace for decoder, translation in translations.items()}


def _draw_passes(traces: Mapping[str, Any], folder: Path, browser: bool) -> list[Path]:
    """Write every trace in all formats; its key is the stem of the files."""
    import ddgviz

    suffixes = ("svg", "html", "tex", "json", *(("pdf", "png") if browser else ()))
    traces_by_path = {folder / f"{stem}.{suffix}": trace for stem, trace in traces.items() for suffix in suffixes}
    for path, trace in traces_by_path.items():
        ddgviz.save(trace, path)
        print(path)
    return list(traces_by_path)


def _write_index(folder: Path, paths: Sequence[Path]) -> Path:
    """Write a page with each picture and links to its formats; a table without a picture is one line."""
    from html import escape
    from urllib.parse import quote

    from fastdecode_lib.store import write_text

    forms: dict[str, list[str]] = {}
    for path in paths:
        name, _, suffix = path.relative_to(folder).as_posix().rpartition(".")
        forms.setdefault(name, []).append(suffix)
    lines = [
        "<!doctype html>",
        '<html lang="en"><meta charset="utf-8">',
        f"<title>{len(forms)} figures and tables</title>",
        "<style>body{font:14px system-ui;max-width:900px;margin:24px auto;padding:0 16px}img{max-width:100%}</style>",
    ]
    for name, suffixes in sorted(forms.items()):
        links = " ".join(f'<a href="{quote(name)}.{suffix}">.{suffix}</a>' for suffix in sorted(set(suffixes)))
        lines.append(f'<h2 id="{escape(name)}">{escape(name)}</h2><p>{links}</p>')
        if "svg" in suffixes:
            lines.append(f'<img loading="lazy" alt="{escape(name)}" src="{quote(name)}.svg">')
    path = folder / "index.html"
    write_text(path, "\n".join([*lines, "</html>", ""]))
    return path


def _result(e: Any, scale: Any, *, make: bool) -> Any:
    """The table of an experiment: the one that comes with fastdecode, or else made now if it is quick or `make` is true."""
    from fastdecode_lib.papers.outcomes import NoResult, committed

    try:
        return committed(e.name, scale)
    except NoResult:
        if not (make or e.live):
            raise
    if not e.live:
        print(f"fastdecode: making {e.name} at scale {scale}, which has not been made before", file=sys.stderr)
    return e.run(scale, **e.accepted({"progress": sys.stderr.isatty()}))


def _pages() -> int:
    """Write what pages have from results; only charts that have changed are drawn again."""
    from fastdecode_lib.papers import page
    from fastdecode_lib.store import write_text

    for path, text in page.pages().items():
        write_text(path, text)
        print(path)
    _draw_charts(page.FOLDER / page.CHARTS)
    return 0


def charts() -> Iterator[tuple[str, Any]]:
    """Every chart of the pages: the stem of its file, and the figure."""
    import ddgviz
    from fastdecode_lib.papers import page

    for name, rows, chart in page.charts():
        yield name, ddgviz.curves(rows, **chart.settings) if chart else _frontier(rows)


def chart_key(figure: Any) -> str:
    """A short hash of all that plotly draws a figure from."""
    return hashlib.sha256(figure.to_json().encode()).hexdigest()[:16]


def _draw_charts(folder: Path) -> None:
    """Draw the charts that have changed as SVG, all at once."""
    import plotly.io

    from ddgviz.browser import find_browser
    from fastdecode_lib.store import write_text

    folder.mkdir(parents=True, exist_ok=True)
    changed: dict[Path, tuple[Any, str]] = {}
    for name, figure in charts():
        path, key = folder / f"{name}.svg", f"<!-- {chart_key(figure)} -->\n"
        if not (path.is_file() and path.read_text(encoding="utf-8").endswith(key)):
            changed[path] = figure, key
    if not changed:
        return
    find_browser()
    with tempfile.TemporaryDirectory() as folder_of_drawings:
        drawings = [Path(folder_of_drawings) / path.name for path in changed]
        figures = [figure for figure, _ in changed.values()]
        heights = [figure.layout.height for figure in figures]  # plotly leaves them out where it writes several
        plotly.io.write_images(figures, drawings, width=860, height=heights)
        for (path, (_, key)), drawing in zip(changed.items(), drawings, strict=True):
            write_text(path, f"{drawing.read_text(encoding='utf-8')}\n{key}")
            print(path)


def _frontier(rows: Any) -> Any:
    """All methods by speedup and share of outputs unchanged; the names of lossless ones, which lie on one line, are slanted."""
    import ddgviz
    from ddgviz import labels

    rows = rows.dropna(subset=["unchanged"])
    titles = {"x_title": "times as fast as greedy decoding", "y_title": "share of outputs unchanged"}
    figure = ddgviz.frontier(rows, "speedup", "unchanged", "method", **titles)
    lossless = rows[rows["unchanged"] == 1].sort_values("speedup")
    furthest = 1.12 * rows["speedup"].max()
    places = [speedup / furthest * labels.WIDE for speedup in lossless["speedup"]]
    moved = labels.apart(places, labels.LINE, labels.WIDE)
    names = {label.text: label for label in figure.layout.annotations}
    for method, place, beside in zip(lossless["method"], places, moved, strict=True):
        if method not in names:
            continue
        names[method].update(y=1, xanchor="left", yanchor="bottom", textangle=-45, yshift=4, xshift=beside - place - 4)
    figure.update_layout(height=560)
    figure.update_xaxes(range=[0, furthest])
    lowest = min(0.6, rows["unchanged"].min()) - 0.03
    ticks = [number / 10 for number in range(11) if number / 10 > lowest]
    return figure.update_yaxes(tickformat=".0%", tickvals=ticks, range=[lowest, 1 + 0.4 * (1 - lowest)])


def _write_tables(e: Any, frame: Any, stem: Path, scale: str) -> list[Path]:
    """Write the columns that an experiment declares as CSV and as LaTeX, and all of its rows as JSON."""
    from fastdecode_lib.papers.reading import numbers, texts
    from fastdecode_lib.store import atomic_file, write_table

    rows = e.arrange(frame) if e.arrange else frame
    paths = [Path(f"{stem}.{suffix}") for suffix in ("csv", "tex", "json")]
    with atomic_file(paths[0]) as temporary:
        numbers(rows, *e.columns).to_csv(temporary, index=False)
    with atomic_file(paths[1]) as temporary:
        texts(rows, *e.columns).to_latex(temporary, index=False, escape=True)
    write_table(paths[2], frame.to_dict("records"), frame.attrs.get("provenance", {}) | {"scale": scale})
    print(f"{stem}.csv .tex .json")
    return paths
