/** The stylesheet of the diff of two memory records, scoped so that no rule leaves the view. */
import { scoped, TOKENS } from '../graph/tokens';

export const STYLE = scoped(
  'memory-diff',
  `${TOKENS}
.wv-view{--wb-more:#b3261e;--wb-less:#0b6b3a}
.wv-view[data-wb-theme=dark]{--wb-more:#ff9d94;--wb-less:#7fd6a0}
@media (forced-colors:active){.wv-view,.wv-view[data-wb-theme=dark]{--wb-surface:Canvas;--wb-more:CanvasText;--wb-less:GrayText}.wv-delta i,.wv-swatch{forced-color-adjust:none}.wv-diffs tr[aria-selected=true]{outline:2px solid Highlight;outline-offset:-2px}.wv-seg button[aria-pressed=true],.wv-btn[aria-pressed=true]{text-decoration:underline}}
.wv-body{flex:1;display:flex;min-height:0;position:relative}
.wv-main{flex:1;min-width:0;display:flex;flex-direction:column;min-height:0;overflow-y:auto}
.wv-over{display:flex;align-items:baseline;gap:4px 20px;padding:8px 16px 2px;flex-wrap:wrap}
.wv-peak{margin:0;font-weight:600;overflow-wrap:anywhere}
.wv-keys{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12px;color:$ink2;margin-left:auto}
.wv-swatch{display:inline-block;width:11px;height:11px;border-radius:2px;border:1px solid;flex:none}
.wv-category{display:inline-flex;align-items:center;gap:6px;color:$ink}
.wv-free{color:$ink}.wv-free::before{content:'';display:inline-block;width:16px;height:10px;border:1px solid $stroke2;margin-right:6px;vertical-align:-1px;background:repeating-linear-gradient(135deg,$hatch 0 1px,$hatchbg 1px 4px)}
.wv-charts{flex:none;padding-top:6px}
.wv-head{display:flex;align-items:center;gap:8px;padding:0 18px 2px 16px;font-size:12px;min-width:0;color:$ink2}
.wv-head b{font-weight:600;color:$ink;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;min-width:0}
.wv-head span{margin-left:auto;white-space:nowrap;overflow:hidden;text-overflow:ellipsis;flex:0 1 auto;min-width:80px}
.wv-letter{flex:none;width:20px;height:20px;border:1px solid $stroke2;border-radius:4px;text-align:center;line-height:18px;font-style:normal;font-weight:600;color:$ink}
.wv-timeline{height:var(--wb-chart,150px);display:block;width:100%;cursor:crosshair}
.wv-aligned{position:relative;margin:0;padding:0 18px 8px 72px;font-size:12px;color:$ink2}
.wv-tables{flex:none;padding:6px 16px 12px}
.wv-phases caption{text-align:left;color:$ink2;padding:4px 0 6px}
.wv-view .wv-phases th,.wv-view .wv-phases td{padding:4px 0 4px 14px;border-bottom:1px solid $grid}
.wv-view .wv-phases th:first-child{padding-left:0}
.wv-view .wv-phases tbody th{color:$ink;font-weight:400}.wv-view .wv-phases tbody tr:last-child>*{font-weight:600}
.wv-under .wv-equal{flex:1 0 100%;margin:8px 0 4px;padding:18px 14px;border:1px solid $stroke;border-radius:6px;background:$raise;color:$ink;text-align:center;font-size:13px}
.wv-changes{flex:1 0 auto;border-top:1px solid $line;padding:0 16px 14px}
.wv-view .wv-diffs th,.wv-view .wv-diffs td{padding:5px 0 5px 14px;border-bottom:1px solid $grid}
.wv-view .wv-diffs thead th{position:sticky;top:0;background:$surface;border-bottom:1px solid $stroke2;z-index:1;padding-top:8px}
.wv-view .wv-diffs th:first-child,.wv-view .wv-diffs td:first-child{padding-left:6px;max-width:0;width:40%}
.wv-diffs tbody tr{cursor:pointer}.wv-view .wv-diffs tr:hover td{background:$lvl1}
.wv-view .wv-diffs tbody tr[aria-selected=true] td{background:$selbg}
.wv-diffs tr[aria-selected=true] td:first-child{box-shadow:inset 3px 0 $sel}
.wv-view .wv-diffs tr:focus-visible{outline:none}
.wv-view .wv-diffs tr:focus-visible td{box-shadow:inset 0 2px $sel,inset 0 -2px $sel}
.wv-view .wv-diffs tfoot th,.wv-view .wv-diffs tfoot td{font-weight:600;color:$ink;border-bottom:0;border-top:1px solid $stroke2}
.wv-view .wv-change{font-weight:600}
.wv-view .wv-barcell{width:26%;min-width:90px}
.wv-delta{display:block;position:relative;height:12px;min-width:80px}
.wv-delta i{position:absolute;top:0;bottom:0;min-width:1px;border-radius:1px}
.wv-more{background:$more}
.wv-less{background:repeating-linear-gradient(135deg,$less 0 3px,transparent 3px 5px);border:1px solid $less}
.wv-delta b{position:absolute;top:-4px;bottom:-4px;width:1px;background:$stroke2}
.wv-calls{display:flex;gap:4px;min-width:0}
.wv-calls i{font-style:normal;color:$ink2;overflow:hidden;text-overflow:ellipsis;flex:0 1 auto;min-width:0;white-space:pre}
.wv-calls b{font-weight:400;flex:0 1 auto;overflow:hidden;text-overflow:ellipsis;flex-shrink:.2}
.wv-under{display:flex;gap:4px 16px;align-items:baseline;flex-wrap:wrap;padding:8px 6px 0;font-size:12px;color:$ink2}
.wv-under p{margin:0}
.wv-inspector{width:336px;flex:none;border-left:1px solid $line;overflow:auto;min-height:0;background:$surface}
.wv-name{font-size:14px;line-height:20px;font-weight:600;overflow-wrap:anywhere}
.wv-seg kbd{margin-left:6px;font-weight:400}
.wv-sec dl+p,.wv-sec p+dl{margin-top:6px}
.wv-sec .wv-btn{height:24px;margin-top:4px}
.wv-view .wv-inspector table{table-layout:fixed}.wv-numbers td:first-child{white-space:normal!important}
.wv-inspector th:nth-child(2),.wv-inspector th:nth-child(3){width:61px}.wv-inspector th:nth-child(4){width:80px}
.wv-lines{margin:0;padding-left:20px}.wv-lines li{margin-bottom:4px;overflow-wrap:anywhere}.wv-lines .wv-mono{display:block;color:$ink2}
.wv-view[data-size=medium] .wv-inspector,.wv-view[data-size=narrow] .wv-inspector{position:absolute;right:0;top:0;bottom:0;width:min(304px,88%);z-index:2;box-shadow:$shadow}
.wv-view:not([data-size=wide]) .wv-bar{flex-wrap:wrap;padding:5px 8px}.wv-view[data-size=narrow] .wv-bar{gap:6px}.wv-view[data-size=narrow] .wv-find{flex:1 1 92px}.wv-view[data-size=narrow] .wv-bar>.wv-space{display:none}
.wv-view:not([data-size=wide]) .wv-bar kbd{display:none}
.wv-view[data-size=narrow] .wv-label,.wv-view[data-size=narrow] .wv-keys{display:none}
.wv-view[data-size=narrow] .wv-diffs td:nth-child(n+6),.wv-view[data-size=narrow] .wv-diffs th:nth-child(n+6){display:none}
.wv-view[data-size=narrow] .wv-head span{display:none}
.wv-view[data-size=narrow] .wv-diffs th,.wv-view[data-size=narrow] .wv-diffs td{padding-left:8px}
.wv-view[data-size=narrow] .wv-barcell{width:12%;min-width:40px}.wv-view[data-size=narrow] .wv-delta{min-width:30px}
`,
);
