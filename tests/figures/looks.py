"""Questions about a figure that was drawn: its series, titles, texts and legends."""

from itertools import combinations, pairwise

import numpy as np
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.container import ErrorbarContainer
from matplotlib.lines import Line2D
from matplotlib.text import Text


def lines_of(axis):
    """The lines of `axis` that show data; the lines of axhline and axvline are not in data coordinates."""
    return [
        line for line in axis.get_lines() if len(line.get_xdata()) and line.get_transform() == axis.transData
    ]


def look(line):
    """How a line looks beside its colour: its dashes, its marker, and whether that is filled."""
    marker = line.get_marker()
    shown = marker not in ("None", "none", "", " ", None)
    dashes = tuple(line._dash_pattern[1] or ()) if line.get_linestyle() != "None" else "no line"
    return dashes, marker if shown else "no marker", shown and line.get_fillstyle() != "none"


def labelled(axis):
    """{label: look} of the lines of `axis` that a legend lists, those of error bars included."""
    found = {}
    for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
        line = handle[0] if isinstance(handle, ErrorbarContainer) else handle
        if isinstance(line, Line2D):
            found[label] = look(line)
    return found


def same(looks):
    """Pairs of keys of `looks` with the same value."""
    return [(one, other) for (one, a), (other, b) in combinations(looks.items(), 2) if a == b]


def confused(figure):
    """Pairs of series that only their colours tell apart, in one axes or in one legend.

    In an axes these are labelled lines, and all lines of one colour against those of another."""
    pairs = []
    for axis in figure.axes:
        colors = {}
        for line in lines_of(axis):
            colors.setdefault(to_hex(line.get_color()), set()).add(look(line))
        pairs += same(labelled(axis)) + same(colors)
    for legend in legends(figure):
        handles = zip(legend.get_texts(), legend.legend_handles, strict=True)
        pairs += same({text.get_text(): look(one) for text, one in handles if isinstance(one, Line2D)})
    return pairs


def drawn(figure):
    """`figure`, drawn, so that its texts have places, and the renderer."""
    canvas = FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return canvas.get_renderer()


def titles(figure):
    """The titles of `figure` and of its axes."""
    heading = [figure._suptitle] if figure._suptitle else []
    each = [title for axis in figure.axes for title in (axis.title, axis._left_title, axis._right_title)]
    return [title for title in [*heading, *each] if title.get_text()]


def broken_titles(figure):
    """Titles that have several lines."""
    return [title.get_text() for title in titles(figure) if "\n" in title.get_text()]


def texts(figure):
    """The texts of `figure` that are seen; labels of ticks outside the limits are not."""
    hidden = {
        label
        for scale in figure.findobj(Axis)
        for tick in scale.get_major_ticks() + scale.get_minor_ticks()
        if not scale.get_visible()
        or not min(scale.get_view_interval()) <= tick.get_loc() <= max(scale.get_view_interval())
        for label in (tick.label1, tick.label2)
    }
    found = figure.findobj(Text)
    return [text for text in found if text not in hidden and text.get_visible() and text.get_text().strip()]


def cut_texts(figure):
    """Texts that the edge of the figure cuts off."""
    renderer, edge = drawn(figure), figure.bbox
    boxes = [(text, text.get_window_extent(renderer)) for text in texts(figure)]
    return [
        text.get_text()
        for text, box in boxes
        if box.x0 < edge.x0 - 1 or box.x1 > edge.x1 + 1 or box.y0 < edge.y0 - 1 or box.y1 > edge.y1 + 1
    ]


def laid_on(figure):
    """Pairs of texts of which one lies on the other, and texts in axes that lie on a marker."""
    renderer = drawn(figure)
    level = [text for text in texts(figure) if text.get_rotation() % 90 == 0]
    boxes = {text: text.get_window_extent(renderer) for text in level}
    found = [(one, other) for one, other in combinations(boxes, 2) if boxes[one].overlaps(boxes[other])]
    for text in [text for axis in figure.axes for text in axis.texts if text in boxes]:
        for line in filter(lambda line: look(line)[1] != "no marker", lines_of(text.axes)):
            around = boxes[text].padded(line.get_markersize() / 2 * figure.dpi / 72)
            places = line.get_transform().transform(np.column_stack(line.get_data()))
            found += [(text, line) for place in places if around.contains(*place)]
    return [tuple(map(str, pair)) for pair in found]


def legends(figure):
    """The legends of `figure` and of its axes, those added as artists included."""
    each = [
        child for axis in figure.axes for child in axis.get_children() if type(child).__name__ == "Legend"
    ]
    return [*figure.legends, *each]


def covered(figure):
    """Lines and bars that a legend lies on."""
    renderer = drawn(figure)
    boxes = [legend.get_window_extent(renderer) for legend in legends(figure)]
    found = []
    for axis in figure.axes:
        inside = axis.get_window_extent(renderer)
        for line in lines_of(axis):
            places = line.get_transform().transform(np.column_stack([line.get_xdata(), line.get_ydata()]))
            if line.get_linestyle() != "None" and len(places) > 1:
                share = np.linspace(0.0, 1.0, 50)[:, None]
                steps = [a + share * (b - a) for a, b in pairwise(places)]
                places = np.concatenate(steps)
            x, y = places.T
            seen = places[(x >= inside.x0) & (x <= inside.x1) & (y >= inside.y0) & (y <= inside.y1)]
            found += [line.get_label() for box in boxes if any(box.contains(*place) for place in seen)]
        for bar in axis.patches:
            found += ["a bar" for box in boxes if box.overlaps(bar.get_window_extent(renderer))]
    return found
