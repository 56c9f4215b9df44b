"""How the pictures look: one palette for light and one for dark, in the same SVG.

Drawn in the light palette on a card of its own; a style sheet in the file puts the dark one in its place where the
reader prefers dark, so that card and ink always fit each other, whatever page they stand on.
"""

import textwrap
from pathlib import Path

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator  # noqa: E402

LIGHT = {"card": "#ffffff", "ink": "#1f2328", "muted": "#59636e", "grid": "#d8dee4",
         "gateway": "#c2410c", "echo": "#1d4ed8", "base": "#7b8794"}
DARK = {"card": "#0d1117", "ink": "#e6edf3", "muted": "#9aa4af", "grid": "#30363d",
        "gateway": "#fb923c", "echo": "#79b0ff", "base": "#8b98a5"}
NAMES = {"rushgate": ("Rushgate", "gateway"), "echo-tokio": ("bare echo (tokio)", "echo"),
         "bare-task": ("bare tokio task", "echo")}

colour = dict(LIGHT)

pyplot.rcParams.update({
    "svg.fonttype": "none",
    "svg.hashsalt": "rushgate",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    "font.size": 10.5,
})


def number(value: float, _position=None) -> str:
    """With thousands set apart."""
    return f"{value:,.0f}" if abs(value) >= 10 or value == int(value) else f"{value:g}"


def figure(title: str, caption: str, panels: int = 1) -> tuple[Figure, list[Axes]]:
    """A card with one or two plots side by side, and what they say above them."""
    made, axes = pyplot.subplots(1, panels, figsize=(8.6, 4.6), squeeze=False)
    made.patch.set_facecolor(colour["card"])
    # A factor stays on the line of its sign.
    made.text(0.02, 0.955, textwrap.fill(title.replace(" ×", "\u00a0×"), 76), color=colour["ink"], fontsize=12.5, fontweight="bold", va="top")
    made.text(0.02, 0.02, textwrap.fill(caption, 135), color=colour["muted"], fontsize=8.5, va="bottom")
    made.subplots_adjust(left=0.115, right=0.97, top=0.77, bottom=0.23, wspace=0.28)
    return made, list(axes[0])


def dress(axis: Axes, x_label: str, y_label: str) -> None:
    """Axes that stay in the background."""
    axis.set_facecolor(colour["card"])
    axis.set_xlabel(x_label, color=colour["muted"])
    axis.set_ylabel(y_label, color=colour["muted"])
    axis.tick_params(colors=colour["muted"], length=3)
    axis.grid(axis="y", color=colour["grid"], linewidth=0.8)
    axis.set_axisbelow(True)
    for side, spine in axis.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(colour["grid"])
    axis.yaxis.set_major_formatter(FuncFormatter(number))


def log_ticks(axis, ticks: list[float]) -> None:
    """The measured points, and nothing else, as ticks of a logarithmic axis."""
    axis.set_major_locator(matplotlib.ticker.FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(number))
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def line(axis: Axes, contender: str, xs: list, ys: list, form: str = "{:,.0f}", above: bool = True) -> None:
    """A contender's curve with its values at the points."""
    name, key = NAMES[contender]
    axis.plot(xs, ys, color=colour[key], marker="o", markersize=5, linewidth=2, label=name)
    for x, y in zip(xs, ys):
        axis.annotate(form.format(y), (x, y), textcoords="offset points", xytext=(0, 7 if above else -14),
                      ha="center", color=colour[key], fontsize=8.5)


def legend(axis: Axes, **where) -> None:
    """Names beside colours, without a frame."""
    axis.legend(frameon=False, labelcolor=colour["ink"], fontsize=9.5, **where)


def bars(axis: Axes, groups: list[str], series: list[tuple[str, str, list[float]]], form: str = "{:,.0f}") -> None:
    """Bars side by side: (name, colour, a value for each group)."""
    width = 0.76 / len(series)
    for place, (name, key, values) in enumerate(series):
        xs = [group + (place - (len(series) - 1) / 2) * width for group in range(len(groups))]
        axis.bar(xs, values, width * 0.92, color=colour[key], label=name)
        for x, value in zip(xs, values):
            axis.annotate(form.format(value), (x, value), textcoords="offset points", xytext=(0, 4), ha="center",
                          color=colour["ink"], fontsize=9)
    axis.set_xticks(range(len(groups)), groups)
    axis.margins(y=0.16)


def save(made: Figure, file: Path) -> Path:
    """As SVG for both palettes, or as anything else in the one that is in force."""
    made.savefig(file, facecolor=made.get_facecolor(), metadata={"Date": None} if file.suffix == ".svg" else None, dpi=110)
    pyplot.close(made)
    if file.suffix == ".svg":
        rules = "".join(
            f'[style*="{kind}: {LIGHT[name]}"]{{{kind}:{DARK[name]}!important}}'
            for name in LIGHT for kind in ("fill", "stroke")
        )
        sheet = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>"
        text = file.read_text()
        head, tail = text.split(" <defs>", 1)
        file.write_text(f"{head} {sheet}\n <defs>{tail}")
    return file
