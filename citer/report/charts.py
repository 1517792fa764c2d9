"""How a chart becomes SVG on the page, or a picture of its own.

Charts are Altair's. Their colours are variables of `page.css`, so that they follow the reader's
light or dark mode. A mark's description, from the field `tip`, is shown on hover and tap.
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

STYLE = (Path(__file__).parent / "page.css").read_text(encoding="utf-8")
LIGHT = dict(re.findall(r"--(\w+): (#\w+)", STYLE.partition("@media")[0]))
AXIS = {"domain": False, "ticks": False, "gridColor": "var(--rule)", "tickCount": 6}
MUTED = {"labelColor": "var(--muted)", "titleColor": "var(--muted)", "titleFontWeight": "normal"}
SIZES = {"labelFontSize": 11, "titleFontSize": 11, "titlePadding": 8, "labelLimit": 400}
CONFIG = {
    "background": "transparent",
    "font": "Liberation Sans, Arial, sans-serif",  # the first is in vl-convert, on every machine
    "axis": AXIS | MUTED | SIZES,
    "circle": {"size": 60, "opacity": 1},
    "point": {"size": 60, "opacity": 1},
    "view": {"stroke": None},
}
WIDTH, HEIGHT = 400, 260  # pixels
ROW = alt.Step(24)  # of a name
SCALE = 2  # of a PNG
Drawn = alt.Chart | alt.LayerChart | alt.FacetChart
TIP = alt.Description("tip:N")


def chart(rows: Iterable[Mapping[str, Any]]) -> alt.Chart:
    """Return a chart of rows without marks."""
    return alt.Chart(alt.InlineData(values=[*rows]), width=WIDTH, height=HEIGHT)


def raw(channel: type, field: str) -> Any:
    """Return an encoding by a column that holds colours or shapes themselves."""
    return channel(f"{field}:N").scale(None).legend(None)


def mixed(colour: str, part: int = 75, other: str = "fg") -> str:
    """Mix a colour with one of the page's, so that it can be seen in light and dark mode."""
    return f"color-mix(in srgb, {colour} {part}%, var(--{other}))"


def svg(chart: Drawn, name: str) -> str:
    """Return a chart as SVG. Its name makes ids unique on a page."""
    text = str(vl_convert.vegalite_to_svg(chart.to_dict() | {"config": CONFIG}))
    for number, clip in enumerate(re.findall(r'id="(clip\d+)"', text)):
        text = re.sub(rf"\b{clip}\b", f"{name}-{number}", text)  # the converter goes on counting
    return text


def in_light(svg: str) -> str:
    """Replace the page's variables by the colours of its light mode, for a picture of its own."""
    unmixed = re.sub(r"color-mix\(in srgb, (#?\w+) [^)]*\)\)", r"\1", svg)
    return re.sub(r"var\(--(\w+)\)", lambda match: LIGHT[match[1]], unmixed)


def png(svg: str) -> bytes:
    """Draw an SVG without variables."""
    return bytes(vl_convert.svg_to_png(svg, scale=SCALE))


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}\N{NO-BREAK SPACE}%"
