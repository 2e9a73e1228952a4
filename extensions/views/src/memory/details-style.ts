/** The stylesheet of a refused request and its remedies. */
export const DETAILS_STYLE = `
.wv-oom{color:$bad}.wv-fits{color:$good;font-weight:600}
.wv-back{padding:8px 16px 0}
.wv-sec p.wv-lead{margin:8px 0 4px;color:$ink2}
.wv-view .wv-obstacles{table-layout:fixed}
.wv-remedies tbody th{font-weight:600;color:$ink;white-space:normal}
.wv-view .wv-remedies tbody th,.wv-view .wv-remedies tbody tr:first-child td{padding-top:8px;vertical-align:baseline}
.wv-view .wv-remedies tbody tr:last-child td{white-space:normal;text-align:left;padding:0 0 8px;border-bottom:1px solid $grid}
.wv-remedies tbody:last-child tr:last-child td{border-bottom:0}
.wv-remedies p{margin:0 0 4px;overflow-wrap:anywhere}
.wv-unfit th{font-weight:400!important}
.wv-best th,.wv-best td{background:$goodbg!important}
.wv-best tr:first-child th,.wv-best td:first-child{box-shadow:inset 3px 0 $good}
.wv-best tr>:first-child{padding-left:10px!important}.wv-best tr>:last-child{padding-right:8px!important}
.wv-cheapest{display:block;color:$good;font-weight:400}
.wv-prediction .wv-kv{column-gap:6px}.wv-prediction dd{white-space:normal!important;overflow-wrap:anywhere}
.wv-view .wv-lanes{margin-bottom:8px}.wv-view .wv-lanes td:nth-child(2){width:99%;min-width:70px;max-width:none;overflow:visible;padding-left:10px}
.wv-lane{position:relative;height:10px}
.wv-lane i{position:absolute;top:0;bottom:0;min-width:1px}
.wv-lane b{position:absolute;top:-3px;bottom:-3px;border-left:1px dashed $bad}
.wv-lane .wv-requested{background:$bad}
.wv-lane .wv-hole{background:repeating-linear-gradient(135deg,$hatch 0 1px,$hatchbg 1px 4px);outline:1px solid $stroke2;outline-offset:-1px}
.wv-copy{display:flex;gap:6px;align-items:flex-start}
.wv-copy pre{flex:1;min-width:0;margin:0;padding:3px 8px;overflow:auto;max-height:120px;color:$ink;white-space:pre-wrap;overflow-wrap:anywhere}
.wv-copy .wv-btn{height:26px;padding:0 8px;font-size:12px}
.wv-bar .wv-pill{flex:none;max-width:190px;height:24px;cursor:pointer}
`;
