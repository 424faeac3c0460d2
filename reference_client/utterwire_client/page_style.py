"""How the pages of measurements look: light and dark, narrow and wide, from nothing but this."""

from typing import Final

__all__ = ["PAGE_STYLE"]

PAGE_STYLE: Final = """
:root { color-scheme: light dark; --paper: #fbfbfa; --card: #fff; --ink: #1b1d21; --soft: #575c66;
  --line: #dcdee3; --text: #a7b4c8; --wait: #f0b429; --net: #3b6fd4; --hush: #b9dfc8;
  --play: #14713d; --bad: #b1231f; }
@media (prefers-color-scheme: dark) { :root { --paper: #16181c; --card: #1e2126; --ink: #e8e9ec;
  --soft: #a4a9b4; --line: #363a42; --text: #55617a; --wait: #d9a227; --net: #7aa5f5;
  --hush: #2c5a40; --play: #6fd39a; --bad: #ff928c; } }
* { box-sizing: border-box; }
html { font: 16px/1.5 system-ui, -apple-system, "Segoe UI", "DejaVu Sans", sans-serif; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; background: var(--paper);
  color: var(--ink); }
h1 { font-size: 1.5rem; line-height: 1.2; margin: .2rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0; overflow-wrap: anywhere; }
.soft { color: var(--soft); font-size: .875rem; }
dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(9rem, 1fr)); gap: .75rem;
  margin: 1rem 0; }
dl div { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .5rem .75rem; }
dt { color: var(--soft); font-size: .875rem; } dd { margin: 0; font-size: 1.25rem; }
.late { color: var(--bad); font-weight: 600; }
.key { list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0;
  margin: .5rem 0; }
.key i { display: inline-block; width: .9rem; height: .9rem; border-radius: 3px;
  margin-right: .4rem; vertical-align: -.1rem; }
ol { list-style: none; margin: 0; padding: 0; }
li.row { border-top: 1px solid var(--line); padding: .5rem 0; }
.lane { position: relative; height: .8rem; margin: .2rem 0; background: linear-gradient(to right,
  var(--line) 1px, transparent 1px) 0 0 / 10% 100%; }
.lane i { position: absolute; top: 0; bottom: 0; min-width: 2px; border-radius: 2px; }
.text { background: var(--text); } .wait { background: var(--wait); }
.net { background: var(--net); } .hush { background: var(--hush); }
.play { background: var(--play); }
.gap { background: repeating-linear-gradient(45deg, var(--bad) 0 3px, transparent 3px 6px);
  outline: 1px solid var(--bad); outline-offset: -1px; }
.axis { display: flex; justify-content: space-between; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--soft); font-weight: 500; font-size: .875rem; }
"""
