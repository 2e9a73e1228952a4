/** The stylesheet of a recording from afar, scoped so that no rule reaches another view. */
import { scoped, TOKENS } from '../graph/tokens';

export const STYLE = scoped(
  'overview',
  `${TOKENS}
.wv-title{font-weight:600;overflow:hidden;text-overflow:ellipsis;white-space:nowrap;min-width:40px}
.wv-chooser{flex:1;min-height:0;overflow-y:auto;display:flex;flex-direction:column;gap:12px;padding:16px 20px 20px}
.wv-chooser p{margin:0;overflow-wrap:anywhere}
.wv-summary b{font-weight:600}
.wv-plot{position:relative;flex:1 1 auto;min-height:200px;max-height:600px;border:1px solid $line;border-radius:6px;overflow:hidden;background:$surface;touch-action:none}
.wv-overcanvas{position:absolute;inset:0;width:100%;height:100%;cursor:crosshair}
.wv-thumb{position:absolute;top:8px;height:18px;background:$selbg;border:1.5px solid $sel;border-radius:4px;cursor:grab}
.wv-thumb::after{content:'';position:absolute;left:50%;top:5px;width:12px;height:5px;margin-left:-6px;background:repeating-linear-gradient(90deg,$sel 0 2px,transparent 2px 5px)}
.wv-thumb:active{cursor:grabbing}
.wv-grip{position:absolute;width:13px;margin-left:-6.5px;cursor:ew-resize}
.wv-grip::after{content:'';position:absolute;left:2.5px;top:50%;width:8px;height:30px;margin-top:-15px;box-sizing:border-box;background:$raise;border:1.5px solid $sel;border-radius:4px}
.wv-choice,.wv-go{display:flex;align-items:center;gap:8px 12px;flex-wrap:wrap}
.wv-number{display:inline-flex;align-items:center;gap:8px;color:$ink2}
.wv-view .wv-number input{width:112px;height:28px;padding:0 8px;border:1px solid $stroke;border-radius:4px;background:$raise;color:$ink;text-align:right}
.wv-presets{display:inline-flex;gap:8px;flex-wrap:wrap;margin-left:auto}
.wv-chosen{color:$ink2}
.wv-refused{color:$bad}.wv-refused::before{content:'✕ '}
.wv-view .wv-primary{background:#1565c0;border-color:transparent;color:#fff;padding:0 14px}
.wv-view .wv-primary:hover{background:#0d47a1}
.wv-view .wv-primary[aria-disabled=true]{background:$lvl2;color:$ink2;border-color:$stroke;cursor:default}
@media (forced-colors:active){.wv-thumb,.wv-grip::after{forced-color-adjust:none;border-color:Highlight;background:Canvas}}
`,
);
