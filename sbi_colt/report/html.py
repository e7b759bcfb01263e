"""A report as one HTML page: figures embedded, nothing fetched, all text escaped."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sbi_colt.report.colours import GREEN, ORANGE
from sbi_colt.report.comparison_text import (
    comparison_headline,
    comparison_notes,
    comparison_tables,
)
from sbi_colt.report.figures import panels
from sbi_colt.report.text import (
    HEADER,
    caption,
    headline,
    report_rows,
    report_sentences,
)

if TYPE_CHECKING:
    from sbi_colt.report.comparison import ComparisonReport
    from sbi_colt.report.diagnostic import DiagnosticReport

__all__ = ["comparison_body", "comparison_page", "report_body", "report_page"]

_STYLE = f"""
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 60rem;
       padding: 1rem; }}
h1 {{ font-size: 1.4rem; margin: 0.5rem 0; }}
.verdict {{ border-left: 0.4rem solid {GREEN}; padding: 0.2rem 0.8rem; }}
.rejected {{ border-color: {ORANGE}; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums;
        margin-bottom: 1rem; }}
th, td {{ padding: 0.25rem 0.8rem; text-align: right; border-bottom: 1px solid #8886; }}
th:first-child, td:first-child {{ text-align: left; }}
td, th {{ white-space: nowrap; }}
@media (max-width: 30rem) {{
  th, td {{ padding: 0.2rem 0.35rem; font-size: 0.85rem; }}
}}
.figures {{ display: grid; gap: 0.8rem;
           grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); }}
figure {{ margin: 0; }}
figcaption {{ font-size: 0.85rem; opacity: 0.85; }}
img {{ width: 100%; height: auto; background: white; }}
footer {{ font-size: 0.85rem; opacity: 0.75; margin-top: 1.5rem; }}
"""


def report_page(report: DiagnosticReport) -> str:
    """Return the page of a report on one posterior."""
    figures = []
    for description, plot in panels(report):
        figure = Figure(figsize=(5, 4.2), layout="constrained")
        plot(figure.add_subplot())
        image = _embedded(figure, description)
        text = escape(caption(description))
        figures.append(f"<figure>{image}<figcaption>{text}</figcaption></figure>")
    return _page(
        "Posterior diagnostics",
        headline(report),
        report.rejected,
        [_report_content(report), '<div class="figures">', *figures, "</div>"],
        f"sbi_colt; seed {report.seed}",
    )


def report_body(report: DiagnosticReport) -> str:
    """Return verdict, table and sentences of a report, for a notebook."""
    return _verdict(headline(report)) + _report_content(report)


def comparison_page(comparison: ComparisonReport) -> str:
    """Return the page of a comparison."""
    reports = comparison.reports.values()
    return _page(
        "Posteriors compared",
        comparison_headline(comparison),
        all(report.rejected for report in reports),
        [
            _comparison_content(comparison),
            _embedded(comparison.plot(), "distances with intervals"),
        ],
        f"sbi_colt; seed {next(iter(reports)).seed}",
    )


def comparison_body(comparison: ComparisonReport) -> str:
    """Return tables and sentences of a comparison, for a notebook."""
    head = _verdict(comparison_headline(comparison))
    return head + _comparison_content(comparison)


def _report_content(report: DiagnosticReport) -> str:
    table = _table(HEADER, report_rows(report))
    return table + _paragraphs(report_sentences(report))


def _comparison_content(comparison: ComparisonReport) -> str:
    tables = (_table(header, rows) for header, *rows in comparison_tables(comparison))
    return "".join(tables) + _paragraphs(comparison_notes(comparison))


def _verdict(text: str) -> str:
    return f"<p><strong>{escape(text)}</strong></p>"


def _paragraphs(sentences: Iterable[str]) -> str:
    return "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table that can be scrolled; cells are escaped."""
    lines = [
        "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in row) + "</tr>"
        for tag, row in [("th", header), *(("td", row) for row in rows)]
    ]
    return f'<div class="scroll"><table>{"".join(lines)}</table></div>'


def _embedded(picture: Figure | Axes, description: str) -> str:
    """Return a figure, or that of an Axes, as an image inside the page."""
    figure = picture if isinstance(picture, Figure) else picture.get_figure(root=True)
    assert figure is not None
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=110)
    data = base64.b64encode(buffer.getvalue()).decode()
    return f'<img alt="{escape(description)}" src="data:image/png;base64,{data}">'


def _page(
    title: str, verdict: str, rejected: bool, parts: Sequence[str], footer: str
) -> str:
    """Return a whole page; the parts are HTML, the other texts are escaped here."""
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
