/** The memory view's stylesheet, scoped so that no rule reaches another view on the page. */
import { scoped, TOKENS } from '../graph/tokens';
import { FLAME_STYLE } from './flame-style';
import { DETAILS_STYLE } from './details-style';
import { WHAT_IF_MOTION, WHAT_IF_STYLE } from './what-if-style';

export const STYLE =
  scoped(
    'memory',
    `${TOKENS}${FLAME_STYLE}${WHAT_IF_STYLE}${DETAILS_STYLE}
.wv-title{font-weight:600;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;min-width:40px}
.wv-body{flex:1;display:flex;min-height:0;position:relative}
.wv-main{flex:1;min-width:0;display:flex;flex-direction:column;position:relative;min-height:0;overflow-y:auto}
.wv-peak{margin:0;overflow-wrap:anywhere}
.wv-peak b{font-weight:600}
.wv-keys{display:flex;flex-wrap:wrap;gap:0 2px;padding:4px 11px 2px}
.wv-keys button{display:inline-flex;gap:6px;align-items:center;border:1px solid transparent;border-radius:4px;background:none;padding:2px 5px;font-size:12px;cursor:pointer;height:24px;white-space:nowrap}
.wv-keys button:hover{background:var(--wb-lvl1)}
.wv-keys button[aria-pressed=false]{opacity:.55;text-decoration:line-through}
.wv-keys button span{color:var(--wb-ink2)}
.wv-swatch{display:inline-block;width:11px;height:11px;border-radius:2px;border:1px solid;flex:none}
.wv-category{display:inline-flex;align-items:center;gap:6px}
.wv-timeline{flex:0 0 auto;height:clamp(170px,24%,320px);display:block;width:100%;cursor:crosshair;touch-action:none}
.wv-plain .wv-timeline{height:clamp(170px,34%,340px)}
.wv-part{display:flex;gap:12px;align-items:baseline;padding:8px 16px 4px;font-size:12px;color:var(--wb-ink2);border-top:1px solid var(--wb-line);flex-wrap:wrap}
.wv-part b{font-weight:600;color:var(--wb-ink)}
.wv-over{display:flex;align-items:center;gap:12px;padding:6px 16px 0}
.wv-over .wv-seg{margin-left:auto;height:22px;font-size:12px}.wv-over .wv-seg button{height:20px;padding:0 8px}
.wv-segments{flex:1 1 280px;min-height:280px;display:flex;flex-direction:column;position:relative}
.wv-segments .wv-part{flex-wrap:nowrap;gap:10px}.wv-segments .wv-part>span:not([class]){overflow:hidden;text-overflow:ellipsis;white-space:nowrap;min-width:0}
.wv-view:not([data-size=wide]) .wv-segments .wv-part .wv-state{display:none}
.wv-mapscroll{flex:1;overflow:auto;min-height:0}
.wv-map,.wv-lens{display:block;cursor:pointer}
.wv-lens{flex:none}
.wv-tip{position:absolute;z-index:3;max-width:284px;pointer-events:none;background:var(--wb-raise);border:1px solid var(--wb-stroke);border-radius:4px;box-shadow:var(--wb-shadow);padding:5px 8px;font-size:12px;overflow-wrap:anywhere}
.wv-tip b{font-weight:600}.wv-tip div{color:var(--wb-ink2)}
.wv-state{white-space:nowrap}
.wv-state::before{content:'';display:inline-block;width:16px;height:10px;border:1px solid var(--wb-stroke2);margin-right:6px;vertical-align:-1px}
.wv-state-a::before{background:linear-gradient(90deg,var(--wb-c-parameters) 33%,var(--wb-c-gradients) 33% 66%,var(--wb-c-activations) 66%)}
.wv-state-p::before,.wv-state-w::before{background:repeating-linear-gradient(0deg,var(--wb-hatch) 0 2px,transparent 2px 4px)}
.wv-state-s::before{background:radial-gradient(var(--wb-ink) 28%,transparent 32%) 0 0/4px 4px}
.wv-state-r::before{background:var(--wb-ink)}
.wv-state-x::before,.wv-state-o::before{background:repeating-linear-gradient(45deg,var(--wb-stroke2) 0 1px,transparent 1px 4px),repeating-linear-gradient(135deg,var(--wb-stroke2) 0 1px,var(--wb-hatchbg) 1px 4px)}
.wv-state-f::before{background:repeating-linear-gradient(135deg,var(--wb-hatch) 0 1px,var(--wb-hatchbg) 1px 4px)}
.wv-state-l::before{height:0;border-width:0 0 2px;border-color:var(--wb-ink);vertical-align:3px}
.wv-keys>.wv-state{display:inline-flex;align-items:center;font-size:12px;padding:0 6px;white-space:pre}
.wv-keys .wv-value{color:var(--wb-ink2)}
.wv-split{flex:none;border-top:1px solid var(--wb-line);padding:8px 0 10px}
.wv-splithead{display:flex;align-items:center;gap:12px;padding:0 16px 6px;min-width:0;flex-wrap:wrap;row-gap:4px}.wv-splithead>b,.wv-splithead>.wv-proof,.wv-splithead>.wv-seg{flex:none}
.wv-splithead>b{font-weight:600}
.wv-splithead .wv-seg{height:24px;font-size:12px}.wv-splithead .wv-seg button{height:22px}
.wv-sum{flex:1 1 340px;color:var(--wb-ink2);font-size:12px;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;min-width:0}
.wv-sum.wv-off{color:var(--wb-bad)}
.wv-splitbar{display:block;width:100%;height:46px}
.wv-parts{display:flex;justify-content:space-between;gap:8px 16px;padding:0 16px;flex-wrap:wrap;font-size:12px}
.wv-parts b{display:block;font-weight:600}
.wv-parts .wv-state::before{width:11px;height:11px;border-radius:2px}
.wv-parts>div>span{padding-left:19px}
.wv-parts.wv-many i:last-child{display:none}
.wv-parts i{font-style:normal;color:var(--wb-ink2);margin-left:7px}
.wv-pill{display:inline-block;border:1px solid var(--wb-stroke);border-radius:10px;padding:1px 9px;font-size:12px;color:var(--wb-ink2);white-space:nowrap;max-width:420px;overflow:hidden;text-overflow:ellipsis;vertical-align:middle}
.wv-good{color:var(--wb-good);border-color:var(--wb-good);background:var(--wb-goodbg)}
.wv-warn{color:var(--wb-warn);border-color:var(--wb-warn);background:var(--wb-warnbg)}
.wv-view{--wb-good:#0b6b3a;--wb-goodbg:#e2f4e9;--wb-warn:#8a5000;--wb-warnbg:#fff1da}
.wv-view[data-wb-theme=dark]{--wb-good:#7fd6a0;--wb-goodbg:#14301f;--wb-warn:#ffc266;--wb-warnbg:#38290f}
.wv-chips{display:flex;gap:6px;margin-top:6px;flex-wrap:wrap}
.wv-chip{border:1px solid var(--wb-stroke);border-radius:11px;padding:2px 9px;font-size:12px}
.wv-actions{display:flex;flex-direction:column;gap:8px}
.wv-actions .wv-btn{justify-content:space-between;width:100%}
.wv-sort{border:0;background:none;padding:0;cursor:pointer;white-space:nowrap;color:inherit}
.wv-view .wv-sizes caption,.wv-phases caption{text-align:left;color:var(--wb-ink2);padding:8px 0 4px}
.wv-view .wv-sizes th,.wv-view .wv-sizes td{padding:6px 0 6px 12px;border-bottom:1px solid var(--wb-grid)}
.wv-view .wv-sizes thead th{border-bottom:2px solid var(--wb-stroke2);padding-top:4px;padding-bottom:4px}
.wv-view .wv-sizes th:first-child{padding-left:0}
.wv-view .wv-sizes tbody th,.wv-view .wv-sizes tfoot th{color:var(--wb-ink)}
.wv-view .wv-sizes tfoot th,.wv-view .wv-sizes tfoot td{font-weight:600}
.wv-own{flex:none}
.wv-rows{flex:1 0 160px;overflow:auto;padding:0 16px 12px}
.wv-view .wv-holders th,.wv-view .wv-phases thead th{position:sticky;top:0;background:var(--wb-surface);padding:4px 0 4px 12px;border-bottom:1px solid var(--wb-stroke2);z-index:1}
.wv-view .wv-holders td,.wv-view .wv-phases td,.wv-view .wv-phases tbody th{padding:4px 0 4px 12px;border-bottom:1px solid var(--wb-grid)}
.wv-view .wv-holders th:first-child,.wv-view .wv-holders td:first-child{padding-left:6px}
.wv-view .wv-holders td:nth-child(-n+3),.wv-view .wv-holders th:nth-child(-n+3){text-align:left}
.wv-holders td:nth-child(1){max-width:260px}.wv-holders td:nth-child(2){max-width:180px}
.wv-holders tbody tr{cursor:pointer}.wv-view .wv-holders tbody tr:hover td{background:var(--wb-lvl1)}
.wv-view .wv-holders tr[aria-selected=true] td{background:var(--wb-selbg)}
.wv-holders tr[aria-selected=true] td:first-child{box-shadow:inset 3px 0 var(--wb-sel)}
.wv-life{display:inline-block;position:relative;width:110px;height:8px;background:var(--wb-lvl2);border-radius:2px;vertical-align:middle}
.wv-life i{position:absolute;top:0;bottom:0;border-radius:2px}
.wv-life b{position:absolute;top:-3px;bottom:-3px;width:2px;margin-left:-1px;background:var(--wb-sel)}
.wv-sec .wv-life{width:100%;height:10px;margin-top:10px}
.wv-inspector{width:336px;flex:none;border-left:1px solid var(--wb-line);overflow:auto;min-height:0;background:var(--wb-surface)}
.wv-inspector ul{margin:0;padding-left:18px}
.wv-view[data-size=medium] .wv-inspector,.wv-view[data-size=narrow] .wv-inspector{position:absolute;right:0;top:0;bottom:0;width:min(304px,88%);z-index:2;box-shadow:var(--wb-shadow)}
.wv-view[data-size=narrow] .wv-bar{flex-wrap:wrap;padding:5px 8px;gap:6px}.wv-view[data-size=narrow] .wv-find{flex:1 1 92px}.wv-view[data-size=narrow] .wv-bar>.wv-space{flex:none}
.wv-view[data-size=narrow] .wv-holders td:nth-child(1){max-width:0;width:46%}.wv-view[data-size=narrow] .wv-holders td:nth-child(2){max-width:74px}
.wv-view[data-size=medium] .wv-bar{flex-wrap:wrap;gap:6px}.wv-view[data-size=medium] .wv-title{flex:1 1 76px}
.wv-view[data-size=medium] .wv-bar>.wv-space{flex:none}.wv-view[data-size=medium] .wv-find{flex:1 1 92px;max-width:228px}.wv-view[data-size=medium] .wv-find+.wv-btn{margin-left:auto}
.wv-view[data-size=narrow] .wv-over{flex-wrap:wrap;row-gap:6px}.wv-view[data-size=narrow] .wv-peak{flex:1 1 100%}
.wv-view[data-size=medium] .wv-bar kbd,.wv-view[data-size=narrow] .wv-bar kbd{display:none}
.wv-view[data-size=medium] .wv-holders td:nth-child(6),.wv-view[data-size=medium] .wv-holders th:nth-child(6),.wv-view[data-size=narrow] .wv-holders td:nth-child(6),.wv-view[data-size=narrow] .wv-holders th:nth-child(6),.wv-view[data-size=narrow] .wv-holders td:nth-child(7),.wv-view[data-size=narrow] .wv-holders th:nth-child(7),.wv-view[data-size=narrow] .wv-holders td:nth-child(5),.wv-view[data-size=narrow] .wv-holders th:nth-child(5){display:none}
`,
  ) + WHAT_IF_MOTION;
