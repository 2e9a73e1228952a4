/** The stylesheet of the compile report, scoped so that no rule leaves the view. */
import { scoped, TOKENS } from '../graph/tokens';

export const STYLE = scoped(
  'compile',
  `${TOKENS}
.wv-view{--wb-p0:#2f6fb3;--wb-p1:#7c5cd6;--wb-p2:#b8651b;--wb-p3:#5b7f3a;--wb-warnink:#8a4b00}
.wv-view[data-wb-theme=dark]{--wb-p0:#4a8fd8;--wb-p1:#9a7ff0;--wb-p2:#d58239;--wb-p3:#7da552;--wb-warnink:#ffb86b}
.wv-view.wv-bare{height:auto;min-height:150px}
.wv-bar{border-bottom:0;padding-bottom:0}
.wv-title{font-size:14px;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;min-width:0}
.i{width:16px;height:16px;fill:currentColor;flex:none}.i.s12{width:12px;height:12px}
.wv-over{flex:none;padding:2px 12px 10px;border-bottom:1px solid $line;max-height:46%;overflow:auto}
.wv-over p{margin:4px 0 0;font-size:12px;overflow-wrap:anywhere}
.wv-line{display:flex;flex-wrap:wrap;align-items:baseline;justify-content:space-between;gap:2px 20px}
.wv-figures{display:flex;flex-wrap:wrap;gap:2px 18px}
.wv-figure b{font-weight:600}.wv-figure{white-space:pre}
.wv-figure .i{margin-right:4px;vertical-align:-1px}
.wv-warn{color:$warnink}
.wv-cached{color:$ink2;font-size:12px}
.wv-time{margin-top:8px}.wv-time b{font-weight:600}
.wv-keys{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12px;color:$ink2}
.wv-keys b{color:$ink}
.wv-key{display:inline-block;width:10px;height:10px;border-radius:2px;margin-right:6px;vertical-align:-1px}
.wv-phases{display:flex;height:18px;margin-top:4px;gap:1px;border-radius:3px;overflow:hidden;background:$lvl2}
.wv-phase{flex:0 0 0;min-width:2px;overflow:hidden;font-style:normal;font-size:11px;line-height:18px;color:#fff;text-align:center;white-space:nowrap}
.wv-view[data-wb-theme=dark] .wv-phase{color:#111}
.wv-p0{background:$p0}.wv-p1{background:$p1}.wv-p2{background:$p2}.wv-p3{background:$p3}
.wv-switches{margin:6px 0 0;padding-left:20px;font-size:12px;color:$ink2}
.wv-body{flex:1;display:flex;min-height:0}
.wv-main{flex:1 1 54%;min-width:0;min-height:0;display:flex;flex-direction:column;container-type:inline-size}
.wv-findings{flex:0 1 auto;max-height:60%;overflow:auto}
.wv-pieces{flex:1 1 0;min-height:120px;overflow:auto}
.wv-view h3{margin:0;padding:10px 12px 6px;font-size:12px;line-height:16px;font-weight:600;color:$ink;display:flex;gap:8px;align-items:baseline;position:sticky;top:0;background:$surface;z-index:2}
.wv-view h3 .wv-note{font-weight:400}
.wv-view ul{list-style:none;margin:0;padding:0}
.wv-view p{margin:0}
.wv-nothing{padding:4px 12px 12px;color:$ink2}
.wv-more{padding:6px 12px 12px}
.wv-more:empty{display:none}
.wv-finding{padding:8px 12px;border-top:1px solid $grid;cursor:pointer;content-visibility:auto;contain-intrinsic-size:auto 140px;overflow-wrap:anywhere}
.wv-finding:hover{background:$lvl1}
.wv-finding p{margin-top:4px}.wv-finding p b{font-weight:600}
.wv-view .wv-finding:focus-visible,.wv-view .wv-kernels li:focus-visible{outline-offset:-2px}
.wv-head{display:flex;align-items:center;gap:8px;min-width:0}
.wv-head .wv-link,.wv-finding .wv-head>b{white-space:nowrap}
.wv-break .wv-head .i,.wv-recompile .wv-head .i{color:$warnink}
.wv-given-up .wv-head .i{color:$bad}
.wv-region{margin-left:auto;text-align:right;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;min-width:40px;font-size:12px}
.wv-pill{border:1px solid $stroke;border-radius:8px;padding:0 6px;font-size:11px;line-height:15px;color:$ink2;white-space:nowrap;flex:none}
.wv-finding .wv-code{margin-top:6px}
.wv-guard code,.wv-finding p code,.wv-hints code{font:12px/16px $code-font;background:none;padding:0;color:inherit}
.wv-guard{color:$ink2;font-size:12px}
.wv-view .wv-hints{margin:4px 0 0;padding-left:16px;list-style:'→ ';font-size:12px}
.wv-hints li{margin:2px 0;padding-left:2px}
.wv-finding details{font-size:12px;margin-top:4px}.wv-finding summary{cursor:pointer;color:$ink2}
.wv-out{color:$anchor;font-size:12px;display:inline-flex;gap:4px;align-items:center}
.wv-pieces{border-top:1px solid $line;padding-bottom:8px}
.wv-view .wv-pieces th,.wv-view .wv-pieces td{padding:4px 0 4px 12px;border-bottom:1px solid $grid;max-width:240px}
.wv-view .wv-pieces thead th{position:sticky;top:32px;background:$surface;border-bottom:1px solid $stroke2;z-index:1}
.wv-view .wv-pieces th:first-child,.wv-view .wv-pieces td:first-child{padding-left:12px}
.wv-view .wv-pieces td:first-child{padding-left:24px;width:99%;max-width:0}
.wv-view .wv-pieces tr>:last-child{padding-right:12px}
.wv-view .wv-group th{color:$ink;background:$lvl1;max-width:0}
.wv-group b{font-weight:600;margin-right:10px}
.wv-pieces .wv-pill{margin-left:6px}
.wv-pieces tbody tr:not(.wv-group){cursor:pointer}
.wv-view .wv-pieces tbody tr:not(.wv-group):hover td{background:$lvl1}
.wv-view .wv-pieces tr[aria-selected=true] td{background:$selbg}
.wv-pieces tr[aria-selected=true] td:first-child{box-shadow:inset 3px 0 $sel}
.wv-view .wv-pieces tr:focus-visible{outline:none}
.wv-view .wv-pieces tr:focus-visible td{box-shadow:inset 0 2px $sel,inset 0 -2px $sel}
.wv-took span{vertical-align:middle}
.wv-stack{display:inline-flex;width:64px;height:8px;margin-right:8px}
.wv-took>span:last-child{display:inline-block;min-width:46px}
.wv-stack i{display:block;height:8px}
.wv-kernels{flex:1 1 46%;min-width:0;display:flex;flex-direction:column;border-left:1px solid $line;min-height:0}
.wv-of{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;min-width:0;flex:0 1 auto}
.wv-list{flex:0 1 auto;max-height:44%;overflow:auto;min-height:60px}
.wv-kernels li{padding:6px 12px;border-top:1px solid $grid;cursor:pointer}
.wv-kernels li:hover{background:$lvl1}
.wv-kernels li[aria-selected=true]{background:$selbg;box-shadow:inset 3px 0 $sel}
.wv-kernels li .wv-head b{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;min-width:60px}
.wv-facts{margin-left:auto;white-space:nowrap;font-size:12px}
.wv-fused{display:flex;flex-wrap:wrap;gap:3px 6px;margin-top:3px;font-size:12px}
.wv-fused code{font:11px/15px $code-font;border:1px solid $stroke;border-radius:3px;padding:0 4px;background:$raise;color:$ink}
.wv-source{flex:1 1 56%;min-height:0;display:flex;flex-direction:column;border-top:1px solid $line}
.wv-source>.wv-head{padding:4px 8px 4px 12px;flex:none;border-bottom:1px solid $line}
.wv-source>.wv-head b{overflow:hidden;text-overflow:ellipsis;white-space:nowrap;min-width:0}
.wv-source>.wv-head .wv-note{white-space:nowrap}
.wv-source .wv-btn{height:24px}
.wv-text{flex:1;min-height:0;overflow:auto;background:var(--jp-cell-editor-background,$lvl1)}
.wv-view .wv-text:focus-visible{outline-offset:-2px}
.wv-text .wv-nothing{padding-top:12px}
.wv-both{display:flex;min-width:max-content}
.wv-view pre{margin:0;padding:6px 12px 12px;font:12px/18px $code-font;background:none;color:$ink;white-space:pre;tab-size:4;border:0;overflow:visible}
.wv-view pre code{font:inherit;background:none;padding:0;color:inherit;white-space:pre}
.wv-view .wv-gutter{padding:6px 8px 12px 12px;text-align:right;color:$ink2;user-select:none;position:sticky;left:0;background:var(--jp-cell-editor-background,$lvl1);border-right:1px solid $line}
.wv-comment{color:var(--jp-mirror-editor-comment-color,#4b6a6a)}
.wv-string{color:var(--jp-mirror-editor-string-color,#b42b2b)}
.wv-number{color:var(--jp-mirror-editor-number-color,#0a7d3c)}
.wv-word{color:var(--jp-mirror-editor-keyword-color,#0a6b2d);font-weight:600}
.wv-view.wv-bare .wv-message{position:static}
.wv-message p{max-width:60ch}.wv-message .wv-code{padding:3px 12px;text-align:left;max-width:100%;overflow:auto;color:$ink}
.wv-view:not([data-size=wide]) .wv-body{flex-direction:column}.wv-view:not([data-size=wide]) .wv-main{display:block;overflow:auto}
.wv-view:not([data-size=wide]) .wv-findings,.wv-view:not([data-size=wide]) .wv-pieces{max-height:none;overflow:visible}
.wv-view:not([data-size=wide]) .wv-kernels{border-left:0;border-top:1px solid $line}
.wv-view:not([data-size=wide]) kbd{display:none}
@container (max-width:780px){.wv-pieces tr:not(.wv-group)>:nth-child(7){display:none}.wv-view .wv-pieces tr:not(.wv-group)>:nth-child(6){padding-right:12px}}
@container (max-width:660px){.wv-view .wv-pieces th,.wv-view .wv-pieces td{padding-left:8px}.wv-stack{width:44px}.wv-pieces tr:not(.wv-group)>:nth-child(3){display:none}}
@container (max-width:460px){.wv-stack,.wv-pieces tr:not(.wv-group)>:nth-child(5){display:none}}
@media (forced-colors:active){.wv-phase,.wv-key,.wv-stack i{forced-color-adjust:none;border:1px solid CanvasText}.wv-view{--wb-warnink:CanvasText;--wb-bad:CanvasText}.wv-view .wv-pieces tr[aria-selected=true],.wv-kernels li[aria-selected=true]{outline:2px solid Highlight;outline-offset:-2px}}
`,
);
