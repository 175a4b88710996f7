"""Draws the views below the graph: passes and positions, a beam's hypotheses, clusters and positions."""

from ddgviz import layout, words
from ddgviz.cells import draw_box, draw_cell, draw_token
from ddgviz.drawing import LEFT, Page, number
from ddgviz.trace import Cell, Node, Pick

BAR_UNIT = 22.0
LONGEST_BAR = 72.0
STRIP = 34.0
CLUSTER = 20.0


def grid(page: Page, top: float) -> float:
    """Draw passes and positions; return the y at which they end."""
    theme, model = page.theme, page.model
    largest = max((len(model.new_columns(row)) for row in range(model.rows)), default=0)
    unit = min(BAR_UNIT, LONGEST_BAR / max(largest, 1))
    for index, row in enumerate(page.rows):
        y = top + index * page.pitch
        middle = y + (page.pitch - 4) / 2
        page.text(LEFT - 16, middle + 4, words.pass_name(model, row), 12, theme.muted, text_anchor="end")
        for cell in model.cells(row, page.placed):
            draw_cell(page, cell, y)
        if count := len(model.new_columns(row)):
            x, length = page.right + 18, unit * count
            page.element("rect", x=x, y=middle - 8, width=length, height=16, rx=4, fill=theme.accent, fill_opacity=0.85)
            page.text(x + length + 7, middle + 4.5, f"+{count}", 12, theme.ink, font_weight=600)
    _blocks(page, top)
    return top + page.held * page.pitch - 4


def _blocks(page: Page, top: float) -> None:
    """Draw outlines of cells that were computed together."""
    for block in page.model.blocks():
        columns = [column for column in range(block.column, block.end_column) if column in page.placed]
        rows = [row for row in range(block.row, block.end_row) if row in page.rows]
        if len(columns) < 2 or not rows:
            continue
        x, right = page.placed[columns[0]].x - 2, page.placed[columns[-1]].right + 2
        y = top + (rows[0] - page.rows.start) * page.pitch - 2
        frame = {"x": x, "y": y, "width": right - x, "height": len(rows) * page.pitch, "rx": 8}
        page.element("rect", **frame, fill="none", stroke=page.theme.muted, stroke_opacity=0.55)


def lattice(page: Page, top: float) -> float:
    """Draw a beam's hypotheses as lanes: the tokens that each pass appended; return the y at which they end."""
    theme = page.theme
    columns = page.model.lattice()
    lanes = max(map(len, columns), default=0)
    for index in range(lanes):
        y = top + index * page.pitch + page.pitch / 2 + 2
        page.text(LEFT - 16, y, words.lane_name(index), 12, theme.muted, text_anchor="end")
    drawn = [column for column in page.rows if column in page.placed and column < len(columns)]
    for column in drawn:
        for index, node in enumerate(columns[column]):
            if column - 1 in drawn and node.parent >= 0:
                _link(page, column, index, node, top)
            _node(page, column, node, top + index * page.pitch)
    return top + max(lanes, 1) * page.pitch - 4


def _link(page: Page, column: int, index: int, node: Node, top: float) -> None:
    x, end = page.placed[column - 1].right, page.placed[column].x
    middle = top + (page.pitch - 4) / 2
    y, foot = (number(middle + page.pitch * lane) for lane in (node.parent, index))
    bend = (x + end) / 2
    path = f"M{number(x)} {y}C{number(bend)} {y} {number(bend)} {foot} {number(end)} {foot}"
    style = (page.theme.settled, 2.4, 0.9) if node.best else (page.theme.muted, 1.0, 0.5)
    page.element("path", d=path, fill="none", stroke=style[0], stroke_width=style[1], stroke_opacity=style[2])


def _node(page: Page, column: int, node: Node, y: float) -> None:
    theme, place, high = page.theme, page.placed[column], page.pitch - 4
    kind = "new" if node.best and node.finished else "settled" if node.best else "draft"
    draw_box(page, kind, place, y, high, 0.8)
    if node.finished and not node.best:
        inset = {"x": place.x + 0.5, "y": y + 0.5, "width": place.width - 1, "height": high - 1, "rx": 6}
        page.element("rect", **inset, fill="none", stroke=theme.muted)
    cell = Cell(0, column, kind, node.token, node.label)
    style = {} if node.best else {"font_style": "italic"}
    baseline = y + (high / 2 + 4.5 if node.score is None else 18)
    draw_token(page, cell, baseline, layout.TOKEN_SIZE, theme.ink if node.best else theme.muted, node.best, **style)
    if node.score is not None:
        page.text(place.middle, y + 33, score(node.score), 10, theme.muted, text_anchor="middle")


def score(value: float) -> str:
    """A log-probability with one decimal and a true minus sign."""
    return f"{value:.1f}".replace("-", "−")


def active_sets(page: Page, top: float) -> float:
    """Draw clusters and positions, with the share of the vocabulary scored; return the y at which they end."""
    theme, model = page.theme, page.model
    numbers = clusters(page.model.picks())
    picks = [pick for pick in model.picks(page.upto) if pick.column in page.placed]
    largest = max((pick.active or 0 for pick in model.picks()), default=0) or 1
    page.text(LEFT - 16, top + STRIP - 4, "scored", 12, theme.muted, text_anchor="end")
    for pick in picks:
        if pick.settled and pick.active is not None:
            place, high = page.placed[pick.column], max(1.5, (STRIP - 14) * pick.active / largest)
            bar = {"x": place.x, "y": top + STRIP - high, "width": place.width, "height": high, "rx": 1.5}
            page.element("rect", **bar, fill=theme.settled, fill_opacity=0.55)
            percent = words.percent(model, pick.active)
            page.text(place.middle, top + STRIP - high - 3, percent, 10, theme.muted, text_anchor="middle")
    top += STRIP + 8
    for index, cluster in enumerate(numbers):
        y = top + index * CLUSTER
        page.text(LEFT - 16, y + 12.5, f"cluster {cluster}", 11, theme.muted, text_anchor="end")
        x, right = LEFT, page.right
        page.element("path", d=f"M{number(x)} {number(y + 8)}H{number(right)}", stroke=theme.line)
        size = model.clusters.get(cluster, {}).get("size")
        page.text(page.right + 18, y + 12.5, words.share(model, size), 11, theme.muted)
        for pick in picks:
            if pick.cluster == cluster:
                _pick(page, pick, y, largest)
    return top + len(numbers) * CLUSTER - 4


def _pick(page: Page, pick: Pick, y: float, largest: int) -> None:
    place, theme = page.placed[pick.column], page.theme
    box = {"x": place.x + 0.5, "y": y + 0.5, "width": place.width - 1, "height": 15, "rx": 4}
    page.element("rect", **box, fill=theme.paper)
    if pick.settled:
        alpha = 0.3 + 0.5 * (pick.active or 0) / largest
        page.element("rect", **box, fill=theme.settled, fill_opacity=alpha)
    else:
        page.element("rect", **box, fill="none", stroke=theme.muted, stroke_opacity=0.6, stroke_dasharray="2.5 3")


def clusters(picks: list[Pick]) -> list[int]:
    """Clusters in the order of the first position that picked them, settled tokens before drafts."""
    order = sorted(picks, key=lambda pick: (not pick.settled, pick.column, pick.cluster))
    return list(dict.fromkeys(pick.cluster for pick in order))
