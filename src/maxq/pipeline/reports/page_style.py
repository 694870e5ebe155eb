"""How reports look: one column of text, tables with quiet lines, colours for light, dark and paper.

Drawings take the same colours: `--c1` … `--c8` are the series, `--ink`, `--muted` and `--line` the rest.
"""

from typing import Final

_LIGHT: Final = """
--paper: #fdfdfc; --card: #f4f4f1; --ink: #1d2126; --muted: #626973; --line: #dcdedc; --link: #1f5f9e;
--warn: #8a4b00; --warn-card: #fff4e0;
--c1: #2466a8; --c2: #cf5a22; --c3: #23855a; --c4: #8b4fa8; --c5: #a87c0f; --c6: #c23358; --c7: #2f8796; --c8: #6c727b;
"""
_DARK: Final = """
--paper: #15181c; --card: #1f2429; --ink: #e4e6e8; --muted: #9aa2ac; --line: #343a41; --link: #82b8ef;
--warn: #ffc879; --warn-card: #33291a;
--c1: #6aaaf0; --c2: #f08e5c; --c3: #5cc493; --c4: #c490de; --c5: #dcb44e; --c6: #f0799a; --c7: #62bfce; --c8: #a3abb5;
"""

STYLE: Final = (
    f":root {{ color-scheme: light dark; {_LIGHT} }}\n"
    f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}\n"
    + """
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, "Segoe UI", Roboto,
  "Helvetica Neue", "Noto Sans", "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; }
main { max-width: 80rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.75rem 0 0.5rem; padding-top: 0.75rem; border-top: 1px solid var(--line); }
p { max-width: 48rem; margin: 0.5rem 0 1rem; overflow-wrap: anywhere; }
.made { color: var(--muted); margin: 0.35rem 0 1.25rem; font-size: 0.9rem; }
nav { display: flex; flex-wrap: wrap; gap: 0.25rem 1.25rem; margin: 0 0 1.25rem; font-size: 0.9rem; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: 0.2rem 1.25rem; margin: 0 0 1.25rem;
  font-size: 0.92rem; }
.facts dt { color: var(--muted); } .facts dd { margin: 0; overflow-wrap: anywhere; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: 0.75rem; margin: 1.25rem 0; }
.figures div { background: var(--card); border-radius: 8px; padding: 0.75rem 1rem; }
.figures b { display: block; font-size: 1.45rem; font-weight: 600; line-height: 1.25; white-space: nowrap; }
.figures span { color: var(--muted); font-size: 0.85rem; }
.warning { background: var(--warn-card); color: var(--warn); border-left: 4px solid currentColor;
  padding: 0.6rem 1rem; border-radius: 0 6px 6px 0; max-width: none; }
figure { margin: 1.25rem 0 1.75rem; }
figcaption, caption { color: var(--muted); font-size: 0.9rem; text-align: left; padding: 0.35rem 0; }
.plot figcaption, caption { color: var(--ink); font-weight: 600; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.88rem; line-height: 1.35; }
th { text-align: left; font-weight: 600; color: var(--muted); vertical-align: bottom;
  border-bottom: 1px solid var(--muted); white-space: nowrap; }
th[title] { text-decoration: underline dotted; text-underline-offset: 3px; cursor: help; }
th, td { padding: 0.35rem 0.9rem 0.35rem 0; } th:last-child, td:last-child { padding-right: 0; }
td { border-bottom: 1px solid var(--line); vertical-align: top; }
td.s { white-space: nowrap; } td.w { overflow-wrap: anywhere; min-width: 14rem; }
.n { text-align: right; } td.n { white-space: nowrap; } td.none { color: var(--muted); }
tbody tr:hover { background: var(--card); }
.plot > div { overflow-x: auto; }
svg { display: block; width: 100%; min-width: 42rem; max-width: 68rem; height: auto; overflow: visible; }
@page { size: landscape; margin: 12mm; }
@media print {
  :root { --paper: #fff; }
  body { font-size: 10pt; } main { max-width: none; padding: 0; } nav { display: none; }
  figure.plot, .figures, tr, h2 { break-inside: avoid; } h2 { break-after: avoid; }
  thead { display: table-header-group; }
  .scroll, .plot > div { overflow: visible; } svg { min-width: 0; }
  td.s { white-space: normal; overflow-wrap: break-word; } table { font-size: 8pt; }
  .figures div { border: 1px solid var(--line); }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
)
