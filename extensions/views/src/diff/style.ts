/** What the diff view adds to the graph view's stylesheet: the colours of the three states. */
import { SHARED } from '../graph/style';
import { scoped } from '../graph/tokens';

const OWN = scoped(
  'diff',
  `
.wv-view{--wb-add:#0b6b3a;--wb-addbg:#e2f4e9;--wb-del:#b3261e;--wb-delbg:#fdeceb;--wb-chg:#8a5000;--wb-chgbg:#fff1da}
.wv-view[data-wb-theme=dark]{--wb-add:#7fd6a0;--wb-addbg:#14301f;--wb-del:#ff9d94;--wb-delbg:#3a1c1a;--wb-chg:#ffc266;--wb-chgbg:#38290f}
@media (forced-colors:active){.wv-view,.wv-view[data-wb-theme=dark]{--wb-add:CanvasText;--wb-del:CanvasText;--wb-chg:CanvasText;--wb-addbg:Canvas;--wb-delbg:Canvas;--wb-chgbg:Canvas}}
.removed{--wb-mark:$del;--wb-markbg:$delbg}
.added{--wb-mark:$add;--wb-markbg:$addbg}
.changed{--wb-mark:$chg;--wb-markbg:$chgbg}
.wv-sidebar{flex:none;display:flex;flex-wrap:wrap;align-items:center;gap:6px 12px;padding:6px 12px;border-bottom:1px solid $line;background:$surface}
.wv-sides{display:flex;flex-wrap:wrap;align-items:center;gap:4px 12px;min-width:0}
.wv-side{display:inline-flex;align-items:center;gap:6px;min-width:0;white-space:nowrap}
.wv-side .letter{flex:none;width:24px;height:24px;padding:0;border:1px solid $stroke2;border-radius:4px;background:none;text-align:center;line-height:22px;font-size:12px;font-weight:600;cursor:pointer}
.wv-side .letter:hover{border-color:$ink2}.wv-side .letter[aria-pressed=true]{border-color:$sel;background:$selbg;box-shadow:inset 0 -2px $sel}
.wv-chips{display:flex;flex-wrap:wrap;gap:6px}
.wv-chips .wv-btn{height:26px}
.wv-btn i,.sign,.wv-legend .key>i.mark{font-style:normal;font-weight:600}
.wv-btn i.removed,.wv-btn i.added,.wv-btn i.changed,.sign.removed,.sign.added,.sign.changed{display:inline-block;width:16px;height:16px;border:1px solid $mark;border-radius:50%;background:$markbg;color:$mark;text-align:center;line-height:14px;font-size:12px;flex:none}
.wv-btn i.removed,.sign.removed{border-style:dashed}
.sign.same{display:inline-block;width:16px;text-align:center;flex:none}
.wv-state{display:flex;align-items:center;gap:6px;margin-top:6px;font-weight:600}
.wv-state .sign{font-weight:600}
.wv-sentence p{font-size:14px;line-height:20px;margin:4px 0 0}
.wv-equal{position:absolute;left:50%;bottom:16px;transform:translateX(-50%);max-width:calc(100% - 32px);padding:10px 16px;border:1px solid $stroke;border-radius:6px;background:$raise;box-shadow:$shadow;text-align:center}
.wv-equal b{display:block;font-size:14px;line-height:20px;padding:0 16px}
.wv-equal button{position:absolute;right:4px;top:4px;width:24px;height:24px;border:0;background:none;color:$ink2;cursor:pointer}
.wv-legend .key>i.mark{width:40px;height:16px;border:0;text-align:center;line-height:16px}
.wv-legend .key>i.removed,.wv-legend .key>i.added,.wv-legend .key>i.changed{border:2px solid $mark;border-radius:4px;background:$markbg;color:$mark;line-height:12px}
.wv-legend .key>i.removed{border-style:dashed}
.wv-legend .key>i.text{white-space:nowrap;font-size:11px}
.wv-legend .key{margin:3px 0}
.wv-view .wv-inspector td{max-width:120px}.wv-view .wv-inspector td:first-child{max-width:130px}
.wv-wrap{display:inline-block;max-width:76px;white-space:normal}
.wv-bar .wv-seg span{padding:0 8px}
.wv-view[data-small] [aria-label=Zoom],.wv-view[data-small] .wv-chips .wv-btn:disabled{display:none}
`,
);

export const STYLE = SHARED + OWN;
