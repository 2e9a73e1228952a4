/** The memory view's stylesheet. */
import { TOKENS } from '../graph/tokens';

export const STYLE = `${TOKENS}
.wb-memory .wb-title{font-weight:600;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;min-width:40px}
.wb-memory .wb-body{flex:1;display:flex;min-height:0;position:relative}
.wb-memory .wb-main{flex:1;min-width:0;display:flex;flex-direction:column;position:relative;min-height:0;overflow-y:auto}
.wb-peak{padding:8px 16px 0;overflow-wrap:anywhere}
.wb-peak b{font-weight:600}
.wb-keys{display:flex;flex-wrap:wrap;gap:4px;padding:6px 12px 2px}
.wb-keys button{display:inline-flex;gap:6px;align-items:center;border:1px solid transparent;border-radius:4px;background:none;padding:2px 6px;font-size:12px;cursor:pointer;height:24px;white-space:nowrap}
.wb-keys button:hover{background:var(--wb-lvl1)}
.wb-keys button[aria-pressed=false]{opacity:.55;text-decoration:line-through}
.wb-keys button span{color:var(--wb-ink2)}
.wb-swatch{display:inline-block;width:11px;height:11px;border-radius:2px;border:1px solid;flex:none}
.wb-category{display:inline-flex;align-items:center;gap:6px}
.wb-timeline{flex:0 0 auto;height:clamp(170px,34%,340px);display:block;width:100%;cursor:crosshair;touch-action:none}
.wb-part{display:flex;gap:12px;align-items:baseline;padding:8px 16px 4px;font-size:12px;color:var(--wb-ink2);border-top:1px solid var(--wb-line);flex-wrap:wrap}
.wb-part b{font-weight:600;color:var(--wb-ink)}
.wb-segments{flex:none;display:flex;flex-direction:column;max-height:34%;min-height:60px}
.wb-strips{overflow:auto;min-height:0}
.wb-strips canvas{display:block;cursor:pointer}
.wb-state::before{content:'';display:inline-block;width:16px;height:10px;border:1px solid var(--wb-stroke2);margin-right:6px;vertical-align:-1px}
.wb-state-a::before{background:linear-gradient(90deg,var(--wb-c-parameters) 33%,var(--wb-c-gradients) 33% 66%,var(--wb-c-activations) 66%)}
.wb-state-p::before{background:repeating-linear-gradient(0deg,var(--wb-hatch) 0 2px,transparent 2px 4px)}
.wb-state-f::before{background:repeating-linear-gradient(135deg,var(--wb-hatch) 0 1px,var(--wb-hatchbg) 1px 4px)}
.wb-rows{flex:1 0 160px;overflow:auto;padding:0 16px 12px}
.wb-view .wb-holders th,.wb-view .wb-phases thead th{position:sticky;top:0;background:var(--wb-surface);padding:4px 0 4px 12px;border-bottom:1px solid var(--wb-stroke2);z-index:1}
.wb-view .wb-holders td,.wb-view .wb-phases td,.wb-view .wb-phases tbody th{padding:4px 0 4px 12px;border-bottom:1px solid var(--wb-grid)}
.wb-view .wb-holders th:first-child,.wb-view .wb-holders td:first-child{padding-left:6px}
.wb-view .wb-holders td:nth-child(-n+3),.wb-view .wb-holders th:nth-child(-n+3){text-align:left}
.wb-holders td:nth-child(1){max-width:260px}.wb-holders td:nth-child(2){max-width:180px}
.wb-holders tbody tr{cursor:pointer}.wb-view .wb-holders tbody tr:hover td{background:var(--wb-lvl1)}
.wb-view .wb-holders tr[aria-selected=true] td{background:var(--wb-selbg)}
.wb-holders tr[aria-selected=true] td:first-child{box-shadow:inset 3px 0 var(--wb-sel)}
.wb-phases caption{text-align:left;color:var(--wb-ink2);padding:8px 0 4px}
.wb-life{display:inline-block;position:relative;width:110px;height:8px;background:var(--wb-lvl2);border-radius:2px;vertical-align:middle}
.wb-life i{position:absolute;top:0;bottom:0;border-radius:2px}
.wb-life b{position:absolute;top:-3px;bottom:-3px;width:2px;margin-left:-1px;background:var(--wb-sel)}
.wb-sec .wb-life{width:100%;height:10px;margin-top:10px}
.wb-inspector{width:336px;flex:none;border-left:1px solid var(--wb-line);overflow:auto;min-height:0;background:var(--wb-surface)}
.wb-inspector ul{margin:0;padding-left:18px}
.wb-view[data-size=medium] .wb-inspector,.wb-view[data-size=narrow] .wb-inspector{position:absolute;right:0;top:0;bottom:0;width:min(304px,88%);z-index:2;box-shadow:var(--wb-shadow)}
.wb-view[data-size=narrow] .wb-bar{flex-wrap:wrap;padding:5px 8px}
.wb-view[data-size=medium] .wb-bar kbd,.wb-view[data-size=narrow] .wb-bar kbd{display:none}
.wb-view[data-size=medium] .wb-holders td:nth-child(6),.wb-view[data-size=medium] .wb-holders th:nth-child(6),.wb-view[data-size=narrow] .wb-holders td:nth-child(6),.wb-view[data-size=narrow] .wb-holders th:nth-child(6),.wb-view[data-size=narrow] .wb-holders td:nth-child(7),.wb-view[data-size=narrow] .wb-holders th:nth-child(7),.wb-view[data-size=narrow] .wb-holders td:nth-child(5),.wb-view[data-size=narrow] .wb-holders th:nth-child(5){display:none}
`;
