/** The flame's part of the memory view's stylesheet. */
export const FLAME_STYLE = `
.wv-flame{flex:1 1 280px;min-height:280px;display:flex;flex-direction:column;position:relative}
.wv-flameparts{display:contents}
.wv-failed{color:var(--wb-bad)}
.wv-flame[hidden],.wv-flame label[hidden],.wv-flamebody[hidden],.wv-crumbs[hidden],.wv-only[hidden]{display:none}
.wv-flame .wv-part{align-items:center;gap:6px 10px;padding-bottom:6px}
.wv-flame .wv-part .wv-seg{height:24px;font-size:12px}.wv-flame .wv-part .wv-seg button{height:22px;padding:0 8px}
.wv-flame label{display:inline-flex;gap:5px;align-items:center;color:var(--wb-ink);white-space:nowrap}
.wv-flamebody{flex:1;min-height:0;display:flex;flex-direction:column;position:relative}
.wv-bars{display:block}
.wv-crumbs{display:flex;align-items:center;gap:4px 6px;flex-wrap:wrap;padding:0 16px 6px;font-size:12px;white-space:pre}
.wv-crumbs .wv-btn{height:22px;font-size:12px;padding:0 8px}
.wv-none{padding:24px 16px;text-align:center}
.wv-only{display:inline-flex;align-items:center;gap:4px;border:1px solid var(--wb-sel);border-radius:11px;padding:0 4px 0 9px;font-size:12px;white-space:nowrap}
.wv-only .wv-btn{border:0;background:none;padding:0 4px;height:18px;min-width:0}
.wv-bar .wv-seg kbd{margin-left:5px}
.wv-twist{display:inline-block;width:14px;font-style:normal;cursor:pointer}
.wv-view .wv-holders.wv-calls td:nth-child(n+2),.wv-view .wv-holders.wv-calls th:nth-child(n+2){text-align:right}
.wv-view .wv-calls .wv-link{color:var(--wb-ink);margin-right:8px}
`;
