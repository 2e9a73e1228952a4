/** The stylesheet of a comparison, scoped so that no rule leaves the view. */
import { scoped, TOKENS } from '../graph/tokens';

export const STYLE = scoped(
  'compare',
  `${TOKENS}
.wv-view{--wb-faster:#1f7a45;--wb-slower:#b3462f;--wb-own:#2f6fb3;overflow:auto}
.wv-view[data-wb-theme=dark]{--wb-faster:#6fcf97;--wb-slower:#ff9b85;--wb-own:#64a8ee}
@media (forced-colors:active){.wv-view,.wv-view[data-wb-theme=dark]{--wb-faster:CanvasText;--wb-slower:CanvasText;--wb-own:CanvasText}}
.wv-sections{padding:10px 12px 12px;min-width:0}
.wv-view h2{white-space:normal;overflow-wrap:anywhere;font-size:14px;margin:0}
.wv-view h3{margin:12px 0 0;font-size:13px;line-height:18px;font-weight:600;color:$ink;overflow-wrap:anywhere}
.wv-view p{margin:4px 0;overflow-wrap:anywhere}
.wv-view .wv-verdict{font-size:13px;line-height:18px;margin:4px 0 8px}
.wv-pill{border:1px solid $stroke;border-radius:8px;padding:0 6px;font-size:11px;font-weight:400;line-height:15px;color:$ink2;margin-left:8px}
.wv-scroll{overflow-x:auto;border-top:1px solid $line;border-bottom:1px solid $line}
.wv-view .wv-scroll th,.wv-view .wv-scroll td{padding:5px 0 5px 14px;border-bottom:1px solid $grid;max-width:none;overflow:visible}
.wv-view .wv-scroll tr>:last-child{padding-right:10px}
.wv-view .wv-scroll tbody tr:last-child>*{border-bottom:0}
.wv-view .wv-scroll thead th{border-bottom:1px solid $stroke2}
.wv-view .wv-scroll tr>th:first-child{padding-left:10px;text-align:left;position:sticky;left:0;background:$surface;z-index:1;color:$ink}
.wv-view .wv-scroll tbody th{font-weight:600;max-width:240px;overflow:hidden;text-overflow:ellipsis}
.wv-view .wv-scroll th:nth-child(2),.wv-view .wv-scroll td:nth-child(2){text-align:left}
.wv-sort{border:0;background:none;padding:0;cursor:pointer;font-weight:600!important;color:$ink2!important;white-space:nowrap}
.wv-sort:hover{color:$ink!important;text-decoration:underline}
.wv-view th[aria-sort=ascending] .wv-sort::after{content:' ↑'}
.wv-view th[aria-sort=descending] .wv-sort::after{content:' ↓'}
.wv-view th[aria-sort$=ending] .wv-sort{color:$ink!important}
.wv-view .wv-scroll .wv-plot{padding-top:0;padding-bottom:0;width:182px}
.wv-interval{display:block;overflow:visible}
.wv-view svg text{font-size:11px;fill:$ink2}
.wv-mark{stroke:$grid}.wv-one{stroke:$stroke2}
.wv-interval g line{stroke:currentColor;stroke-width:2}.wv-interval circle{fill:currentColor}
.wv-is-faster,.wv-is-faster b{color:$faster}.wv-is-slower,.wv-is-slower b{color:$slower}
.wv-is-tie,.wv-is-open,.wv-is-baseline{color:$ink2}
.wv-said b{font-weight:600}
.wv-view tbody tr[tabindex]{cursor:pointer}
.wv-view .wv-scroll tbody tr[tabindex]:hover>*{background:$lvl1}
.wv-view .wv-scroll tbody tr[aria-selected=true]>*{background:$selbg}
.wv-view tbody tr[aria-selected=true]>th{box-shadow:inset 3px 0 $sel}
.wv-view tbody tr:focus-visible{outline:none}
.wv-view tbody tr:focus-visible>*{box-shadow:inset 0 2px $sel,inset 0 -2px $sel}
.wv-view .wv-scroll .wv-why{text-align:left;white-space:normal;color:$ink2}
.wv-why span{display:block;max-width:110ch;overflow-wrap:anywhere}
.wv-detail{display:flex;flex-wrap:wrap;gap:8px 16px;padding:10px 12px 0}
.wv-detail>p{flex-basis:100%}
.wv-view figure{margin:0;min-width:0}
.wv-view figcaption{display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12px;color:$ink2;margin:0 0 2px;padding:0;font-style:normal;text-align:left}
.wv-view figcaption b{color:$ink;font-weight:600}
.wv-view figcaption svg{margin-right:5px;vertical-align:-1px}
.wv-view figure svg{display:block}.wv-view figcaption svg{display:inline-block}
.wv-grid{stroke:$grid}
circle.wv-variant{fill:$own}circle.wv-base{fill:none;stroke:$ink2;stroke-width:1.5}
path.wv-variant{fill:none;stroke:$own;stroke-width:1.75}path.wv-base{fill:none;stroke:$ink2;stroke-width:1.5;stroke-dasharray:4 3}
.wv-view footer{margin-top:10px;font-size:12px;color:$ink2}.wv-view footer p{max-width:120ch}
.wv-view[data-size=narrow] .wv-sections{padding:8px}
.wv-view[data-size=narrow] .wv-scroll tbody th{max-width:112px}
.wv-view[data-size=narrow] .wv-detail{padding:10px 0 0}
`,
);
