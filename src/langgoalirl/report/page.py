"""One self-contained HTML page: a style, a head, tables. Nothing is loaded from anywhere."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any

STYLE = """
:root { color-scheme: light }
body { font: 16px/1.5 system-ui, sans-serif; color: #1f2933; max-width: 60rem;
       margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .35rem .7rem; border-bottom: 1px solid #e4e7eb }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
svg { width: 100%; height: auto } blockquote { margin: .3rem 0 .3rem 1rem; color: #52606d }
p.said { margin: .1rem 0 .8rem 1rem; color: #9a3412 }
@media print { body { max-width: none } h2 { break-after: avoid } svg { break-inside: avoid } }
"""


def page(title: str, body: str) -> str:
    """The whole document."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>{STYLE}</style></head><body>
{body}
</body></html>
"""


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table whose first column is text; fractions get three digits, what is missing a dash."""

    def row(cells: Sequence[Any], tag: str) -> str:
        inner = "".join(
            f"<{tag}{' class=n' if i else ''}>{html.escape(shown(cell))}</{tag}>"
            for i, cell in enumerate(cells)
        )
        return f"<tr>{inner}</tr>"

    lines = [row(head, "th"), *(row(cells, "td") for cells in rows)]
    return f"<div class=wide><table>{''.join(lines)}</table></div>"


def shown(cell: Any) -> str:
    """A cell as text."""
    if cell is None:
        return "–"
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)
