"""A report as one HTML page: figures embedded, nothing fetched, all text escaped."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from html import escape

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

__all__ = ["embed_figure", "make_page", "make_table"]

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem;
       padding: 1rem; }
h1 { font-size: 1.4rem; margin: 0.5rem 0; }
.verdict { border-left: 0.4rem solid #009E73; padding: 0.2rem 0.8rem; }
.rejected { border-color: #D55E00; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums;
        margin-bottom: 1rem; }
th, td { padding: 0.25rem 0.8rem; text-align: right; border-bottom: 1px solid #8886; }
th:first-child, td:first-child { text-align: left; }
td, th { white-space: nowrap; }
td:nth-child(2), th:nth-child(2) { text-align: left; }
@media (max-width: 30rem) { th, td { padding: 0.2rem 0.35rem; font-size: 0.85rem; } }
.figures { display: grid; gap: 0.8rem;
           grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); }
img { width: 100%; height: auto; background: white; }
footer { font-size: 0.85rem; opacity: 0.75; margin-top: 1.5rem; }
"""


def make_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; cells are escaped.

    Example:
        >>> make_table(["a"], [["<b>"]])
        '<table><tr><th>a</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    lines = ["<tr>" + "".join(f"<th>{escape(cell)}</th>" for cell in header) + "</tr>"]
    lines += [
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows
    ]
    return f"<table>{''.join(lines)}</table>"


def embed_figure(figure: Figure, description: str) -> str:
    """Return a figure as an image inside the page, and close it."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    plt.close(figure)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{escape(description)}" src="data:image/png;base64,{data}">'


def make_page(
    title: str, verdict: str, rejected: bool, parts: Sequence[str], footer: str
) -> str:
    """Return a whole page.

    Args:
        title: Title, escaped here.
        verdict: The verdict in one sentence, escaped here.
        rejected: Whether it is a rejection.
        parts: Pieces of HTML, already escaped.
        footer: Last line, escaped here.
    """
    colour = "verdict rejected" if rejected else "verdict"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
<p class="{colour}"><strong>{escape(verdict)}</strong></p>
{"".join(parts)}
<footer>{escape(footer)}</footer>
</body>
</html>
"""
