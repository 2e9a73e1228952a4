/** The graph view's stylesheet. */
import { TOKENS } from './tokens';

export const STYLE = `${TOKENS}
.wb-crumbs{display:flex;align-items:center;gap:2px;min-width:0;overflow:hidden;white-space:nowrap;flex:0 1 auto}
.wb-crumbs span{color:var(--wb-ink2)}
.wb-crumbs button{overflow:hidden;text-overflow:ellipsis;max-width:180px;flex:0 1 auto;min-width:18px}
.wb-crumbs b{font-weight:600;overflow:hidden;text-overflow:ellipsis;flex:0 1 auto;min-width:30px}
.wb-body{flex:1;display:flex;min-height:0;position:relative}
.wb-tree{width:216px;flex:none;border-right:1px solid var(--wb-line);display:flex;flex-direction:column;min-height:0;background:var(--wb-surface)}
.wb-tree header{padding:8px 12px;display:flex;justify-content:space-between;color:var(--wb-ink2);font-size:12px}
.wb-tree header b{font-weight:600}
.wb-rows{flex:1;overflow:auto;min-height:0}
.wb-row{height:24px;display:flex;align-items:center;padding-right:12px;gap:4px;white-space:nowrap;cursor:pointer}
.wb-row:hover{background:var(--wb-lvl1)}
.wb-row[aria-selected=true]{background:var(--wb-selbg);box-shadow:inset 3px 0 var(--wb-sel)}
.wb-row .twist{width:16px;flex:none;text-align:center;color:var(--wb-ink2);font-size:10px;transition:none}
.wb-row .name{flex:1;overflow:hidden;text-overflow:ellipsis}
.wb-row .bytes{font-size:12px}
.wb-row .meter{width:26px;height:6px;border-radius:3px;background:var(--wb-lvl2);overflow:hidden;flex:none}
.wb-row .meter i{display:block;height:6px;background:var(--wb-s6)}
.wb-foot{padding:10px 12px;font-size:12px;color:var(--wb-ink2);border-top:1px solid var(--wb-line)}
.wb-foot p{margin:0 0 6px}.wb-foot p:last-child{margin:0}
.wb-main{flex:1;position:relative;min-width:0;background:var(--wb-canvas)}
.wb-surface{position:absolute;inset:0;width:100%;height:100%;display:block;touch-action:none;cursor:grab}
.wb-surface.grabbing{cursor:grabbing}.wb-surface.pointing{cursor:pointer}
.wb-legend{position:absolute;right:12px;top:12px;width:272px;border:1px solid var(--wb-stroke);border-radius:6px;background:var(--wb-raise);padding:8px 12px;font-size:11px;line-height:14px}
.wb-legend:not([open]){width:auto;padding:5px 10px}.wb-legend:not([open]) b::after{content:'Legend';font-size:12px}.wb-legend:not([open]) b{font-size:0}
.wb-legend b{font-weight:600}.wb-legend[open] b{font-size:12px}
.wb-legend summary{cursor:pointer;list-style-position:outside;margin-left:12px}
.wb-legend .ramp{display:flex;margin:8px 0 2px;height:9px;border:1px solid var(--wb-stroke)}
.wb-legend .ramp i{flex:1}
.wb-legend .ticks{display:flex;justify-content:space-between;margin-bottom:6px}
.wb-legend .key{display:flex;align-items:center;gap:10px;min-height:18px}
.wb-legend .key>i{flex:none;width:40px;height:0;border-top:2.5px solid currentColor}
.wb-legend .key>i.held{border-top:2.5px dashed currentColor}
.wb-legend .key>i.flow{border-color:var(--wb-flow)}
.wb-legend .key>i.chip{height:12px;border:1px solid var(--wb-stroke);border-radius:6px;width:26px;background:radial-gradient(circle at 7px 5px,var(--wb-c-parameters) 3.5px,transparent 4px);margin-right:14px}
.wb-legend .key>i.swatch{width:14px;height:14px;border:1px solid var(--wb-stroke2);border-radius:3px}
.wb-legend p{margin:4px 0 0;color:var(--wb-ink2)}
.wb-map{flex:none;align-self:center;margin:0 0 12px;border:1px solid var(--wb-stroke);border-radius:4px;background:var(--wb-raise);cursor:pointer}
.wb-inspector{width:336px;flex:none;border-left:1px solid var(--wb-line);overflow:auto;min-height:0;background:var(--wb-surface)}
.wb-view[data-size=medium] .wb-tree{width:180px}
.wb-view[data-size=medium] .wb-inspector,.wb-view[data-size=narrow] .wb-inspector,.wb-view[data-size=narrow] .wb-tree{position:absolute;top:0;bottom:0;z-index:2;box-shadow:var(--wb-shadow)}
.wb-view[data-size=medium] .wb-inspector,.wb-view[data-size=narrow] .wb-inspector{right:0;width:min(304px,88%)}
.wb-view[data-size=narrow] .wb-tree{left:0;width:min(240px,80%)}
.wb-view[data-size=medium] .wb-label,.wb-view[data-size=narrow] .wb-label,.wb-view[data-size=narrow] .wb-crumbs{display:none}
.wb-view[data-size=medium] .wb-bar,.wb-view[data-size=narrow] .wb-bar{gap:6px;padding:5px 8px}
.wb-view[data-size=narrow] .wb-bar{flex-wrap:wrap}
.wb-view[data-size=medium] .wb-bar kbd,.wb-view[data-size=narrow] .wb-bar kbd{display:none}
.wb-view[data-size=medium] .wb-seg button,.wb-view[data-size=narrow] .wb-seg button,.wb-view[data-size=medium] .wb-bar .wb-btn,.wb-view[data-size=narrow] .wb-bar .wb-btn{padding:0 8px}
.wb-table{position:absolute;inset:0;overflow:auto;background:var(--wb-surface);padding:0 16px 16px}
.wb-view .wb-table th{position:sticky;top:0;background:var(--wb-surface);padding:8px 0 6px 12px;border-bottom:1px solid var(--wb-stroke2)}
.wb-view .wb-table td{padding:4px 0 4px 12px;border-bottom:1px solid var(--wb-grid)}
.wb-view .wb-table td:first-child{max-width:320px}
.wb-table tr[aria-selected=true] td{background:var(--wb-selbg)}
.wb-table tbody tr{cursor:pointer}
.wb-table tbody tr:hover td{background:var(--wb-lvl1)}
.wb-inspector table{table-layout:fixed}
.wb-inspector ul{margin:0;padding-left:18px}
`;
