/** The strip's stylesheet, scoped so that no rule reaches another view on the page. */
import { scoped, TOKENS } from '../graph/tokens';

export const STYLE = scoped(
  'flow',
  `${TOKENS}
.wv-head{flex:none;display:flex;align-items:baseline;gap:10px;padding:8px 16px 4px;min-height:36px;flex-wrap:wrap}
.wv-view .wv-head h2{font-size:13px;line-height:20px;margin:0;flex:none}
.wv-read{flex:1 1 220px;min-width:0;color:var(--wb-ink2);font-size:12px;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.wv-read[data-on=true]{color:var(--wb-ink)}
.wv-head .wv-btn{height:24px;padding:0 8px;align-self:center}
.wv-flow-body{flex:1;min-height:0;display:flex;gap:16px;padding:0 16px 8px;overflow:auto;align-items:flex-start}
.wv-strip{flex:1 1 auto;min-width:0;position:relative}
.wv-strip canvas{display:block;width:100%;cursor:pointer}
.wv-key{flex:none;width:180px;font-size:12px;line-height:16px;color:var(--wb-ink2);padding-top:10px}
.wv-key b{display:block;font-weight:400;margin-bottom:4px}
.wv-ramp{display:flex;height:11px;border:1px solid var(--wb-stroke)}
.wv-ramp i{flex:1}
.wv-ends{display:flex;justify-content:space-between;margin:2px 0 6px;color:var(--wb-ink)}
.wv-key p{margin:0 0 4px;display:flex;gap:8px;align-items:center}
.wv-key p>span:first-child{width:20px;height:11px;flex:none;display:inline-flex;align-items:center;justify-content:center;font-size:10px}
.wv-key .none{background:repeating-linear-gradient(-45deg,var(--wb-hatch) 0 1px,var(--wb-hatchbg) 1px 4px)}
.wv-key .zero{border:1px solid var(--wb-stroke);background:var(--wb-raise)}
.wv-key .bad{color:var(--wb-bad);font-weight:700}
.wv-key .captured{border:2px solid var(--wb-sel);border-radius:3px;width:12px!important;margin:0 4px}
.wv-norms{width:100%;overflow:auto}
.wv-view .wv-norms th{position:sticky;top:0;background:var(--wb-surface);padding:4px 0 4px 12px;border-bottom:1px solid var(--wb-stroke2)}
.wv-view .wv-norms td,.wv-view .wv-norms tbody th{padding:4px 0 4px 12px;border-bottom:1px solid var(--wb-grid);font-weight:400;color:var(--wb-ink);position:static}
.wv-view .wv-norms th:first-child{text-align:left;padding-left:0;max-width:260px}
.wv-notes{padding:0 16px 8px;margin:0;font-size:12px;color:var(--wb-ink2);overflow-wrap:anywhere}
.wv-view[data-size=narrow] .wv-flow-body{flex-direction:column;align-items:stretch}
.wv-view[data-size=narrow] .wv-read{order:1;flex-basis:100%}
.wv-view[data-size=narrow] .wv-head .wv-btn:nth-child(3){margin-left:auto}
.wv-view[data-size=narrow] .wv-head kbd{display:none}
.wv-view[data-size=narrow] .wv-key{width:auto;padding-top:0}
.wv-empty{min-height:80px;display:flex;flex-direction:column;align-items:center;justify-content:center;padding:16px;text-align:center;color:var(--wb-ink2)}
.wv-view[data-foot]{height:auto;flex:none;max-height:min(40%,340px);border-top:1px solid var(--wb-line)}
.wv-view[data-foot] .wv-head{padding:4px 16px;min-height:32px;align-items:center}
.wv-view[data-foot] .wv-empty{min-height:0;padding:2px 16px 12px;align-items:flex-start;text-align:left}
.wv-head .wv-link{font-weight:600;color:inherit!important}
.wv-head .wv-link::before{content:'›';display:inline-block;width:16px;color:var(--wb-ink2)}
.wv-head .wv-link[aria-expanded=true]::before{transform:rotate(90deg) translate(2px,2px)}
`,
);
