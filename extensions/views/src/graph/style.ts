/**
 * The graph view's stylesheet, scoped so that no rule reaches another view on the page: what every
 * face needs, and what only a capture shows.
 */
import { scoped, TOKENS } from './tokens';

export const SHARED = scoped(
  'graph',
  `${TOKENS}
.wv-crumbs{display:flex;align-items:center;gap:2px;min-width:64px;overflow:hidden;white-space:nowrap;flex:0 1 auto}
.wv-crumbs span{color:$ink2}
.wv-crumbs *,.wv-row .name{overflow:hidden;text-overflow:ellipsis}
.wv-crumbs *{max-width:180px;flex:none}
.wv-crumbs span{max-width:none}
.wv-crumbs b{font-weight:600;max-width:320px}
.wv-crumbs[data-cut]>:not(b){display:none}
.wv-crumbs[data-cut] b{flex:0 1 auto}
.wv-crumbs[data-cut] span+b::before{content:'… › ';font-weight:400;color:$ink2}
.wv-body{flex:1;display:flex;min-height:0;position:relative}
.wv-tree{width:228px;flex:none;border-right:1px solid $line;display:flex;flex-direction:column;min-height:0;background:$surface}
.wv-tree header{padding:8px 12px;display:flex;justify-content:space-between;color:$ink2;font-size:12px}
.wv-tree header b{font-weight:600}
.wv-rows{flex:1;overflow:auto;min-height:0}.wv-rows>div{position:relative}
.wv-row{position:absolute;left:0;right:0;height:24px;display:flex;align-items:center;padding-right:8px;gap:4px;white-space:nowrap;cursor:pointer}
.wv-row:hover{background:$lvl1}
.wv-row[aria-selected=true]{background:$selbg;box-shadow:inset 3px 0 $sel}
.wv-row .twist{width:16px;flex:none;text-align:center;color:$ink2;font-size:10px;transition:none}
.wv-row .name{flex:1}
.wv-row .bytes{font-size:12px}
.wv-foot{padding:10px 12px;font-size:12px;color:$ink2;border-top:1px solid $line}
.wv-foot p{margin:0 0 6px}.wv-foot p:last-child{margin:0}
.wv-main{flex:1;position:relative;min-width:0;background:$canvas}
.wv-surface{position:absolute;inset:0;width:100%;height:100%;display:block;touch-action:none;cursor:grab}
.wv-surface.grabbing{cursor:grabbing}.wv-surface.pointing{cursor:pointer}
.wv-legend{position:absolute;right:12px;top:12px;width:272px;border:1px solid $stroke;border-radius:6px;background:$raise;padding:8px 12px;font-size:11px;line-height:14px}
.wv-legend:not([open]){width:auto;padding:5px 10px}.wv-legend:not([open]) b::after{content:'Legend';font-size:12px}.wv-legend:not([open]) b{font-size:0}
.wv-legend b{font-weight:600}.wv-legend[open] b{font-size:12px}
.wv-legend summary{cursor:pointer;list-style-position:outside;margin-left:12px}
.wv-legend .key{display:flex;align-items:center;gap:10px;min-height:18px}
.wv-legend .key>i{flex:none;width:40px;height:0;border-top:2.5px solid currentColor}
.wv-legend .key>i.flow{border-color:$flow}
.wv-legend .key>i.chip{height:12px;border:1px solid $stroke;border-radius:6px;width:26px;background:radial-gradient(circle at 7px 5px,$c-parameters 3.5px,transparent 4px);margin-right:14px}
.wv-legend p{margin:4px 0 0;color:$ink2}
.wv-map{flex:none;align-self:center;margin:0 0 12px;border:1px solid $stroke;border-radius:4px;background:$raise;cursor:pointer}
.wv-inspector{width:336px;flex:none;border-left:1px solid $line;overflow:auto;min-height:0;background:$surface}
.wv-view[data-size=medium] .wv-tree{width:180px}
.wv-view[data-small] .wv-inspector,.wv-view[data-size=narrow] .wv-tree{position:absolute;top:0;bottom:0;z-index:2;box-shadow:$shadow}
.wv-view[data-small] .wv-inspector{right:0;width:min(304px,88%)}
.wv-view[data-size=narrow] .wv-tree{left:0;width:min(240px,80%)}
.wv-view[data-small] .wv-label,.wv-view[data-size=narrow] .wv-crumbs{display:none}
.wv-view[data-small] .wv-bar{gap:6px;padding:5px 8px;flex-wrap:wrap}
.wv-view[data-small] .wv-find{flex:1 9999 110px;max-width:228px}
.wv-view[data-small] .wv-bar kbd{display:none}
.wv-view[data-small] .wv-seg button,.wv-view[data-small] .wv-bar .wv-btn{padding:0 8px}
.wv-table{position:absolute;inset:0;overflow:auto;background:$surface;padding:0 16px 16px 0}
.wv-view .wv-table th{position:sticky;top:0;background:$surface;padding:8px 0 6px 12px;border-bottom:1px solid $stroke2;white-space:normal;vertical-align:bottom;min-width:44px}
.wv-view .wv-table th:first-child{left:0;z-index:1;padding-left:22px;white-space:nowrap}
.wv-view .wv-table td:first-child{position:sticky;left:0;background:$surface}
.wv-view .wv-table tr:focus-visible{outline:none}
.wv-view .wv-table tr:focus-visible td{box-shadow:inset 0 2px $sel,inset 0 -2px $sel}
@media (forced-colors:active){.wv-view .wv-table tr:focus-visible td{outline:2px solid Highlight;outline-offset:-2px}}
.wv-table .twist{display:inline-block;width:14px;color:$ink2}
.wv-view .wv-table td{padding:4px 0 4px 12px;border-bottom:1px solid $grid}
.wv-view .wv-table td:first-child{max-width:320px}
.wv-view .wv-table tr[aria-selected=true] td{background:$selbg}
.wv-table tbody tr{cursor:pointer}
.wv-view .wv-table tbody tr:not([aria-selected=true]):hover td{background:$lvl1}
.wv-banner{flex:none;display:flex;align-items:center;gap:10px;padding:6px 12px;border-bottom:1px solid $line;background:$badbg;box-shadow:inset 3px 0 $bad}
.wv-banner .text{flex:1;min-width:0;overflow-wrap:anywhere}.wv-banner>span:first-child{color:$bad}
.wv-lit,.wv-step{position:absolute;right:12px;bottom:12px;display:flex;align-items:center;gap:12px;max-width:calc(100% - 24px);padding:5px 5px 5px 14px;border:1px solid $sel;border-radius:6px;background:$selbg;box-shadow:$shadow}
.wv-seg button:disabled,.wv-seg button[aria-disabled=true]{color:$ink2;opacity:.6;cursor:default}
.wv-sec details{margin:0 0 6px}.wv-sec summary{cursor:pointer}
.wv-sec code{font:12px/16px $code-font;background:none;padding:0;color:inherit}
.wv-view .wv-inspector td{max-width:104px}.wv-view .wv-inspector td:nth-child(2){max-width:132px}
.wv-inspector ul{margin:0;padding-left:18px}.wv-inspector .wv-note{overflow-wrap:anywhere}
`,
);

export const STYLE =
  SHARED +
  scoped(
    'graph',
    `
.wv-step{left:12px;right:auto}
.wv-lit:not([hidden])~.wv-step{bottom:54px}
.wv-hist{margin:8px 0 2px;font-size:11px;color:$ink2}
.wv-hist .bars{display:flex;align-items:flex-end;gap:1px;height:44px;border-bottom:1px solid $stroke2}
.wv-hist .bars i{flex:1;background:$s6}
.wv-hist .axis{display:flex;gap:1px}.wv-hist .axis span{flex:1;width:0;white-space:nowrap}
.wv-row .meter{position:absolute;right:8px;bottom:1px;width:44px;height:3px;border-radius:2px;background:$lvl2;overflow:hidden}
.wv-row .meter i{display:block;height:3px;background:$s6}
.wv-legend .ramp{display:flex;margin:8px 0 2px;height:9px;border:1px solid $stroke}
.wv-legend .ramp i{flex:1}
.wv-legend .ticks{display:flex;justify-content:space-between;margin-bottom:6px}
.wv-legend .key>i.held{border-top:2.5px dashed currentColor}
.wv-legend .key>i.swatch{width:30px;height:13px;border:1px solid $stroke2;border-radius:4px;margin-right:10px}
.wv-legend .key>i.test{border-top:2px dotted currentColor}
.wv-legend .key>i.sign{border:0}.wv-legend .key>i.sign::before{content:'0';display:block;font-style:normal;font-weight:600;text-align:center;width:14px}
.wv-legend .key>i.sign{width:14px;height:14px}
.wv-legend .key>i.hatched{background:repeating-linear-gradient(-45deg,$hatch 0 1px,$hatchbg 1px 4px)}
.wv-legend .key>i.bad{border:2px solid $bad}
.wv-questions{display:flex;flex-direction:column;gap:8px}
.wv-questions .wv-btn{justify-content:space-between;width:100%}
.wv-questions p,.wv-questions ul{margin:0}
.wv-view .wv-primary{width:100%;margin-bottom:8px;height:auto;flex-direction:column;align-items:flex-start;gap:0;padding:6px 12px;background:#1565c0;border-color:transparent;color:#fff;white-space:normal;text-align:left}
.wv-view .wv-primary:hover{background:#0d47a1}.wv-view .wv-primary b{font-weight:600}
.wv-view .wv-wrap{white-space:pre-wrap;overflow-wrap:anywhere;padding:3px 8px;margin:6px 0}
.wv-unreached li{margin:4px 0;overflow-wrap:anywhere}.wv-unreached .wv-note{display:block}
.wv-unreached li[data-found]{background:$selbg;box-shadow:-4px 0 $selbg,4px 0 $selbg}
`,
  );
