"""One self-contained HTML page: text, tables and figures, everything escaped, nothing fetched, no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from coterie.report import svg

# No font, picture, style or script comes from anywhere: the policy makes the browser hold the page to it.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

_STYLE = """
:root{color-scheme:light}
*{box-sizing:border-box}
body{margin:0 auto;max-width:64rem;padding:1rem;font:16px/1.5 system-ui,sans-serif;color:#1b1f24;background:#fff;
overflow-wrap:anywhere}
h1{font-size:1.6rem;line-height:1.2;margin:.5rem 0}
h2{font-size:1.3rem;line-height:1.25;margin:2.2rem 0 .5rem;padding-top:.8rem;border-top:3px solid #1b1f24}
h3{font-size:1.08rem;margin:1.8rem 0 .3rem}
p{margin:.4rem 0}
a{color:#0b5394}
.lead{color:#46505a}
.warning{border:2px solid #b00020;border-left-width:10px;background:#fff3f3;padding:.6rem .8rem;margin:.8rem 0;
font-weight:600}
.note{border-left:6px solid #d9a400;background:#fff9e6;padding:.5rem .8rem;margin:.6rem 0}
.plain{white-space:pre-line}
figure{margin:.6rem 0 1.2rem}
figcaption{margin-bottom:.3rem;color:#46505a}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr));gap:.8rem 1.4rem}
.plots.three{grid-template-columns:repeat(auto-fit,minmax(min(100%,17rem),1fr))}
.plot{display:block;width:100%;max-width:28rem;height:auto}
.swatch{width:28px;height:12px;vertical-align:-1px;margin-right:.35rem}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:.1rem 1.1rem;margin:.3rem 0;padding:0;font-size:.9rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.88rem;margin:.4rem 0;font-variant-numeric:tabular-nums;overflow-wrap:normal}
th,td{text-align:right;padding:.22rem .55rem;border-bottom:1px solid #dde2e6;vertical-align:top}
th{border-bottom:2px solid #6a747e;white-space:nowrap}
th:first-child,td:first-child,td.text,th.text{text-align:left}
td{white-space:nowrap}
td:first-child{min-width:8rem;white-space:normal}
td.text{min-width:13rem;white-space:normal}
dt{font-weight:600;margin-top:.5rem}
dd{margin:0 0 .3rem 1rem}
details{margin:.3rem 0}
summary{cursor:pointer;color:#0b5394;font-size:.9rem}
footer{margin-top:2rem;border-top:1px solid #dde2e6;color:#46505a;font-size:.88rem}
@media print{
body{max-width:none;padding:0;font-size:11pt}
h2{break-before:page}
h2:first-of-type{break-before:auto}
h2,h3{break-after:avoid}
figure,.plot,tr,.warning{break-inside:avoid}
.plots{grid-template-columns:1fr 1fr}
.scroll{overflow:visible}
table{font-size:8.5pt}
a{color:inherit}
.warning,.note,.plot{print-color-adjust:exact;-webkit-print-color-adjust:exact}
details:not(.long)::details-content{content-visibility:visible;block-size:auto;display:block}
}
"""


def page(title: str, body: Sequence[str]) -> str:
    """The whole document."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(_POLICY)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'  # or a browser would ask for one
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{svg.STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def heading(level: int, text: str, anchor: str | None = None) -> str:
    mark = "" if anchor is None else f' id="{escape(anchor)}"'
    return f"<h{level}{mark}>{escape(text)}</h{level}>"


def paragraph(text: str, kind: str = "") -> str:
    return f"<p{_class(kind)}>{escape(text)}</p>"


def warning(text: str) -> str:
    return f'<p class="warning" role="note">{escape(text)}</p>'


def cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
    return str(value)


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]], text: Sequence[int] = (0,)) -> str:
    """Numbers to the right, the columns `text` to the left; it scrolls by itself where it is too wide."""
    head = "".join(
        f'<th scope="col"{_class("text" if k in text else "")}>{escape(h)}</th>' for k, h in enumerate(headings)
    )
    body = "".join(
        "<tr>"
        + "".join(f"<td{_class('text' if k in text and k else '')}>{escape(cell(v))}</td>" for k, v in enumerate(row))
        + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def folded(summary: str, inside: str, long: bool = False) -> str:
    return f"<details{_class('long' if long else '')}><summary>{escape(summary)}</summary>{inside}</details>"


def legend(names: Sequence[tuple[str, int]]) -> str:
    return '<ul class="legend">' + "".join(f"<li>{svg.swatch(k)}{escape(name)}</li>" for name, k in names) + "</ul>"


def figure(
    caption: str, plots: Sequence[str], numbers: str, names: str = "", long: bool = False, kind: str = ""
) -> str:
    """Plots with a caption, a legend above and their numbers below, folded up."""
    numbers = folded("The numbers of this figure", numbers, long)
    shown = f'<div class="plots{kind and " " + kind}">{"".join(plots)}</div>'
    return f"<figure><figcaption>{escape(caption)}</figcaption>{names}{shown}{numbers}</figure>"


def told(parts: Sequence[tuple[str, str]]) -> str:
    """Names with a sentence each: what would make a table too wide for a phone."""
    return "<dl>" + "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in parts) + "</dl>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
