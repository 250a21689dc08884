"""The report's style sheet and the patterns of its pictures. Light or dark as the reader has it; fit for paper."""

from __future__ import annotations

CSS = """
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1c2128; --soft: #5b6470; --line: #dfe3e8; --track: #eef1f4;
  --good: #1a7f37; --bad: #c4232b; --warn: #9a6700; --live: #0969da; --quiet: #6e7781;
  --good-bg: #dcf5e3; --bad-bg: #ffe3e3; --warn-bg: #fff3cd; --live-bg: #dcecff; --quiet-bg: #e9ecef;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0e1116; --card: #161b22; --ink: #e6edf3; --soft: #9aa4b0; --line: #2b323b; --track: #1f262e;
    --good: #4ac26b; --bad: #ff7b72; --warn: #e3b341; --live: #6cb6ff; --quiet: #8b949e;
    --good-bg: #12301c; --bad-bg: #3b1618; --warn-bg: #362a0b; --live-bg: #10273f; --quiet-bg: #242b33;
  }
}
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 74rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .25rem; overflow-wrap: anywhere }
h2 { font-size: 1.2rem; margin: 0; display: inline; overflow-wrap: anywhere }
h3 { font-size: 1rem; margin: 1.75rem 0 .5rem }
p { margin: .35rem 0; overflow-wrap: anywhere }
a { color: var(--live) }
code, pre { font: 13px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
code { overflow-wrap: anywhere }
.soft { color: var(--soft) }
.small { font-size: .85rem }
.number { font-variant-numeric: tabular-nums; white-space: nowrap }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(10.5rem, 1fr)); gap: .75rem; margin: 1rem 0 }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: .6rem; padding: .7rem .85rem }
.tile dt { color: var(--soft); font-size: .8rem }
.tile dd { margin: 0; font-size: 1.15rem; font-weight: 600; overflow-wrap: anywhere }
.tile dd + dd { font-size: .82rem; font-weight: 400; color: var(--soft) }
dl.tiles { padding: 0 }
.with-ring { display: flex; gap: .75rem; align-items: center }
.ring { flex: none; width: 3.2rem; height: 3.2rem }
.ring circle { fill: none; stroke: var(--track); stroke-width: 5 }
.ring .share { stroke: var(--good) }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .8rem; padding: 1rem 1.1rem 1.25rem;
  margin: 1.25rem 0 }
.card .card { padding: .75rem .9rem; background: var(--page) }
summary { cursor: pointer }
.chip { display: inline-block; padding: 0 .5em; border-radius: 1em; font-size: .82rem; font-weight: 600;
  white-space: nowrap }
.chip.good { color: var(--good); background: var(--good-bg) } .chip.bad { color: var(--bad); background: var(--bad-bg) }
.chip.warn { color: var(--warn); background: var(--warn-bg) }
.chip.live { color: var(--live); background: var(--live-bg) }
.chip.quiet { color: var(--quiet); background: var(--quiet-bg) }
.notice { border-left: 4px solid var(--warn); background: var(--warn-bg); padding: .5rem .8rem; border-radius: .3rem;
  margin: .75rem 0 }
table { border-collapse: collapse; width: 100% }
caption { text-align: left; color: var(--soft); font-size: .85rem; padding-bottom: .35rem }
th, td { text-align: left; vertical-align: top; padding: .35rem .6rem .35rem 0; border-top: 1px solid var(--line) }
thead th { border-top: 0; color: var(--soft); font-weight: 500; font-size: .8rem; vertical-align: bottom }
tbody th { font-weight: 600; overflow-wrap: break-word }
tbody th code { overflow-wrap: anywhere }
tbody th.full { min-width: 9rem }
td.picture, th.picture { width: 38%; min-width: 9rem }
.times th, .times td { vertical-align: middle }
.skipped td { color: var(--soft); font-style: italic }
svg { display: block; overflow: visible }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft) }
.lane { background: var(--track); border-radius: 3px }
.axis { margin-bottom: 2px }
rect.good { fill: var(--good) } rect.bad { fill: var(--bad) } rect.warn { fill: var(--warn) }
rect.live { fill: var(--live) } rect.quiet { fill: var(--quiet) }
rect.wait { fill: url(#waiting) } rect.break { fill: url(#left-out) }
rect.grid { fill: var(--line) }
rect.money { fill: var(--live) } rect.track { fill: var(--track) }
.hatch { stroke: var(--card); stroke-width: 3 } .hatch-ground { fill: var(--warn) }
.dots { fill: var(--soft) }
.left-out { font-style: italic }
.said { color: var(--soft); font-style: italic }
.claims strong { font-weight: 600 }
.claims td:first-of-type, .claims th:nth-child(2) { width: 34% }
.claims ul { list-style: none; margin: 0; padding: 0 }
.claims li { margin: 0 0 .3rem; padding-left: 1.4em; text-indent: -1.4em; overflow-wrap: anywhere }
.claims li > * { text-indent: 0 }
.sign { display: inline-block; width: 1.4em; text-indent: 0; font-weight: 700 }
.sign.good { color: var(--good) } .sign.bad { color: var(--bad) } .sign.warn { color: var(--warn) }
pre { white-space: pre-wrap; overflow-wrap: anywhere; margin: .35rem 0; padding: .55rem .7rem; border-radius: .4rem;
  background: var(--track); max-height: 26rem; overflow: auto }
.round { border-left: 3px solid var(--line); padding-left: .8rem; margin: .6rem 0 }
.round.seen { border-color: var(--bad) }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1rem; margin: .4rem 0 0; padding: 0; list-style: none }
.legend svg { display: inline-block; vertical-align: -2px; margin-right: .35em }
footer { margin-top: 2rem; color: var(--soft); font-size: .85rem }
@media (max-width: 46rem) {
  body { padding: 1rem .6rem 3rem }
  .card { padding: .8rem .75rem 1rem }
  .tiles { grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)) }
  .wide thead { display: none }
  .wide, .wide caption, .wide tbody, .wide tr, .wide th, .wide td { display: block; width: 100% }
  .wide tr { display: flex; flex-wrap: wrap; gap: .1rem .7rem; border-top: 1px solid var(--line); padding: .45rem 0 }
  .wide th, .wide td { border: 0; padding: 0; width: auto }
  .wide td:empty { display: none }
  .wide td.picture, .wide td.full, .wide tbody th.full { width: 100% }
  .wide td[data-label]::before { content: attr(data-label) ": "; color: var(--soft); font-size: .8rem;
    font-style: normal }
  .claims td:first-of-type { width: 100% }
}
@media print {
  body { max-width: none; background: #fff; padding: 0 }
  .card, .tile { break-inside: avoid-page; border-color: #bbb }
  tr { break-inside: avoid }
  pre { max-height: none }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact }
}
"""

PATTERNS = """\
<svg width="0" height="0" aria-hidden="true" focusable="false"><defs>
<pattern id="waiting" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">\
<rect class="hatch-ground" width="7" height="7"/><line class="hatch" x1="0" y1="0" x2="0" y2="7"/></pattern>
<pattern id="left-out" width="6" height="6" patternUnits="userSpaceOnUse">\
<circle class="dots" cx="3" cy="3" r="1"/></pattern>
</defs></svg>
"""
