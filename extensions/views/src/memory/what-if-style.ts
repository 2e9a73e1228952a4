/** The stylesheet of "What if?". */
export const WHAT_IF_STYLE = `
.wv-wi{flex:none;border-top:1px solid $line;padding:8px 16px 10px;position:relative;font-size:12px}
.wv-wi-head{display:flex;align-items:baseline;gap:4px 12px;flex-wrap:wrap;min-height:24px}
.wv-wi-toggle{border:0;background:none;padding:2px 4px;margin:0 -4px;cursor:pointer;border-radius:4px;white-space:nowrap;font-size:13px!important}
.wv-wi-toggle:hover{background:$lvl1}
.wv-wi-toggle b{font-weight:600}
.wv-wi-toggle::before{content:'▸';display:inline-block;width:14px;color:$ink2}
.wv-wi-toggle[aria-expanded=true]::before{content:'▾'}
.wv-wi-said{flex:1 1 340px;min-width:0;overflow-wrap:anywhere;font-size:13px}
.wv-wi b{font-weight:600}
.wv-wi-fits{color:$good}.wv-wi-out,.wv-wi-error{color:$bad}
.wv-wi-body{display:flex;flex-wrap:wrap;gap:10px 32px;align-items:flex-start;padding-top:8px}
.wv-wi-controls{flex:1 1 430px;display:grid;grid-template-columns:repeat(auto-fit,minmax(190px,1fr));gap:8px 20px;min-width:0}
.wv-wi-field{display:flex;flex-direction:column;gap:3px;min-width:0}
.wv-wi-label{color:$ink2;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.wv-wi-label b{color:$ink}
.wv-wi-label.wv-mono{font-size:11px}
.wv-wi-gpu{display:flex;flex-wrap:wrap;gap:4px 6px;margin-bottom:2px}
.wv-wi .wv-seg{height:26px}.wv-wi .wv-seg button{height:24px;padding:0 9px}
.wv-wi select,.wv-wi input[type=number]{font:inherit;color:inherit;height:26px;border:1px solid $stroke;border-radius:4px;background:$raise;padding:0 6px;min-width:0;max-width:100%}
.wv-wi-gpu select{flex:1 1 76px;width:76px}
.wv-wi-gpu input[type=number]{flex:0 1 74px}
.wv-wi select:disabled{opacity:.5}
.wv-switch{display:inline-flex;align-items:center;gap:8px;border:0;background:none;padding:0;height:26px;cursor:pointer;align-self:flex-start}
.wv-switch::before{content:'';width:30px;height:16px;border-radius:8px;border:1px solid $stroke2;background:radial-gradient(circle at 8px 50%,$stroke2 5px,transparent 5.5px) $raise}
.wv-switch[aria-checked=true]::before{background:radial-gradient(circle at 21px 50%,$raise 5px,transparent 5.5px) $sel;border-color:$sel}
.wv-wi-slide{position:relative;height:22px}
.wv-wi-slide input{width:100%;margin:2px 0 0;accent-color:$sel;padding:0;background:none}
.wv-wi-slide input:disabled{opacity:.5}
.wv-wi-tick{position:absolute;bottom:0;width:2px;height:5px;margin-left:-1px;background:$ink}
.wv-wi-plotbox{flex:3 1 460px;min-width:0;overflow-x:auto}
.wv-view .wv-wi-plot{font-size:12px}
.wv-view .wv-wi-plot th,.wv-view .wv-wi-plot td{padding:0 0 0 14px;height:22px;max-width:none;overflow:visible}
.wv-view .wv-wi-plot tbody th{color:$ink;text-align:right;padding-left:8px}
.wv-wi-plot thead th{vertical-align:bottom}.wv-wi-plot thead .wv-wi-svg{height:32px}
.wv-view .wv-wi-plot td:last-child,.wv-view .wv-wi-plot th:last-child{text-align:left;color:$ink2;min-width:110px}
.wv-view .wv-wi-plot .wv-wi-axis{width:99%;min-width:150px;padding:0 0 0 16px}
.wv-view .wv-wi-plot .wv-wi-error{text-align:left;white-space:normal;color:$bad}
.wv-wi-plot tr[aria-current] th,.wv-wi-plot tr[aria-current] td{background:$selbg}
.wv-view .wv-wi-plot tr[aria-current] th{font-weight:600;box-shadow:inset 3px 0 $sel}
.wv-wi-name{border:0;background:none;padding:0 4px;margin:0 -4px!important;cursor:pointer;border-radius:3px;white-space:nowrap}
.wv-wi-name:hover{text-decoration:underline}
.wv-wi-svg{display:block;width:100%;height:22px;overflow:visible}
.wv-wi-svg text{font-size:11px;fill:$ink2}.wv-wi-svg .wv-wi-bold{font-weight:600;fill:$ink}
.wv-wi-grid{stroke:$grid}
.wv-wi-then{stroke:$ink2;stroke-dasharray:3 3}
.wv-wi-limit{stroke:$ink;stroke-width:2}
.wv-wi-mark{fill:$surface;stroke:$ink;stroke-width:1.75}
.wv-wi-recorded{fill:$ink}
.wv-wi-bar{fill:$ink}
.wv-wi-plot tr[aria-current] .wv-wi-bar{fill:$sel}
.wv-wi-plot tr[aria-current] .wv-wi-mark{stroke:$sel}
.wv-wi-plot tr[aria-current] .wv-wi-recorded{fill:$sel}
.wv-working{position:absolute;left:0;right:0;top:-1px;height:2px;overflow:hidden}
.wv-working::after{content:'';display:block;height:100%;width:30%;background:$sel;animation:wv-work 1.1s infinite linear}
@media (prefers-reduced-motion:reduce){.wv-working::after{animation:none;width:100%}}
.wv-view[data-size=narrow] .wv-wi-controls{grid-template-columns:minmax(0,1fr)}
.wv-view[data-size=narrow] .wv-wi-plot .wv-wi-axis,.wv-view[data-size=narrow] .wv-wi-plot td:nth-child(4),.wv-view[data-size=narrow] .wv-wi-plot th:nth-child(4){display:none}
.wv-view[data-size=narrow] .wv-wi-plot tbody th{white-space:normal}.wv-view[data-size=narrow] .wv-wi-plot tbody th:first-child{text-align:left}
`;

/** Frames are no selectors: they stay as they are. */
export const WHAT_IF_MOTION =
  '@keyframes wv-work{from{transform:translateX(-100%)}to{transform:translateX(340%)}}';
