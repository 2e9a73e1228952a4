/** Colour tokens and the controls both views share, as one stylesheet text. */

const SCALE = {
  light: ['f6f4fd', 'ddd8fd', 'c4bbf9', 'ad9ff3', '9684e9', '8069db', '6a4fc9', '5635b3', '431c99'],
  dark: ['2b2445', '3d3266', '4f4288', '6254a8', '7468c7', '877de2', '9a95fa', 'afaeff', 'c4c8ff'],
};
const FIRST_WHITE = 6;
const LAST_WHITE_DARK = 4;

function scale(theme: 'light' | 'dark'): string {
  return SCALE[theme]
    .map((color, step) => {
      const white = theme === 'light' ? step >= FIRST_WHITE : step <= LAST_WHITE_DARK;
      return `--wb-s${step}:#${color};--wb-t${step}:${white ? '#fff' : '#111'};`;
    })
    .join('');
}

const CATEGORIES: Record<string, [string, string, string]> = {
  parameters: ['#0072B2', '#fff', '#0072B2'],
  optimizer: ['#CC79A7', '#111', '#CC79A7'],
  buffers: ['#56B4E9', '#111', '#2b7fb0'],
  gradients: ['#D55E00', '#111', '#D55E00'],
  activations: ['#009E73', '#111', '#009E73'],
  temporaries: ['#E69F00', '#111', '#a87400'],
  unknown: ['#8C8C8C', '#111', '#8C8C8C'],
};

const categories = Object.entries(CATEGORIES)
  .map(
    ([name, [fill, ink, outline]]) =>
      `--wb-c-${name}:${fill};--wb-i-${name}:${ink};--wb-o-${name}:${outline};`,
  )
  .join('');

export const TOKENS = `
.wv-view{${scale('light')}${categories}
--wb-ink:rgba(0,0,0,.87);--wb-ink2:rgba(0,0,0,.63);--wb-surface:var(--jp-layout-color1,#fff);
--wb-canvas:#fafafa;--wb-raise:#fff;--wb-lvl1:#f2f2f5;--wb-lvl2:#e9e9ee;--wb-stroke:#c4c4cc;
--wb-stroke2:#8a8a94;--wb-edge:#8e8e9b;--wb-flow:#c2c2cd;--wb-hatch:#a6a6ae;--wb-hatchbg:#f4f4f6;
--wb-bad:#b3261e;--wb-badbg:#fdeceb;--wb-sel:var(--jp-brand-color1,#1976d2);--wb-selbg:#e3f0fd;
--wb-grid:#e6e6ea;--wb-line:var(--jp-border-color2,#e0e0e0);--wb-anchor:var(--jp-content-link-color,#0d47a1);
--wb-shadow:0 1px 2px rgba(0,0,0,.1),0 4px 14px rgba(0,0,0,.1);
--wb-code-font:var(--jp-code-font-family,ui-monospace,Menlo,Consolas,monospace);
font:13px/16px var(--jp-ui-font-family,system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif);
font-variant-numeric:tabular-nums;color:$ink;background:$surface;color-scheme:light;
position:relative;display:flex;flex-direction:column;overflow:hidden;height:100%;min-height:0;box-sizing:border-box;text-align:left}
.wv-view[data-wb-theme=dark]{${scale('dark')}
--wb-o-buffers:#56B4E9;--wb-o-temporaries:#E69F00;
--wb-ink:rgba(255,255,255,.9);--wb-ink2:rgba(255,255,255,.68);--wb-surface:var(--jp-layout-color1,#1f1f20);
--wb-canvas:#191919;--wb-raise:#262628;--wb-lvl1:#222225;--wb-lvl2:#2b2b30;--wb-stroke:#4c4c55;
--wb-stroke2:#7d7d88;--wb-edge:#8b8b98;--wb-flow:#50505b;--wb-hatch:#66666f;--wb-hatchbg:#29292c;
--wb-bad:#ff9d94;--wb-badbg:#3a1c1a;--wb-sel:#64b5f6;--wb-selbg:#12304a;--wb-grid:#313136;
--wb-line:var(--jp-border-color2,#3a3a3e);--wb-anchor:var(--jp-content-link-color,#8ab4f8);
--wb-shadow:0 1px 2px rgba(0,0,0,.5),0 4px 16px rgba(0,0,0,.5);color-scheme:dark}
@media (forced-colors:active){.wv-view,.wv-view[data-wb-theme=dark]{--wb-ink:CanvasText;--wb-ink2:CanvasText;
--wb-canvas:Canvas;--wb-raise:Canvas;--wb-lvl1:Canvas;--wb-lvl2:Canvas;--wb-stroke:CanvasText;--wb-stroke2:CanvasText;
--wb-edge:CanvasText;--wb-flow:GrayText;--wb-sel:Highlight;--wb-selbg:Canvas;--wb-grid:GrayText}}
.wv-view *{box-sizing:border-box}
.wv-view button,.wv-view input{font:inherit;color:inherit;margin:0}
.wv-view :focus-visible{outline:var(--jp-focus-outline-width,2px) solid var(--jp-focus-outline-color,$sel);outline-offset:1px}
.wv-view canvas:focus-visible{outline-offset:-2px}
.wv-bar{flex:none;min-height:40px;display:flex;align-items:center;gap:8px;padding:5px 12px;border-bottom:1px solid $line;background:var(--jp-toolbar-background,$surface)}
.wv-space{flex:1}
.wv-btn{height:28px;padding:0 10px;border:1px solid $stroke;border-radius:4px;background:$raise;display:inline-flex;align-items:center;gap:6px;white-space:nowrap;cursor:pointer;flex:none}
.wv-btn:hover,.wv-seg button:hover{background:$lvl1}
.wv-btn:disabled{opacity:.5;cursor:default}
.wv-btn[aria-pressed=true]{background:$selbg;box-shadow:inset 0 -2px $sel}
.wv-view kbd{font:11px/16px $code-font;border:1px solid $stroke;border-radius:3px;padding:0 4px;color:$ink2;background:none;box-shadow:none}
.wv-seg{display:inline-flex;border:1px solid $stroke;border-radius:4px;overflow:hidden;height:28px;flex:none}
.wv-seg button{border:0;border-right:1px solid $stroke;background:$raise;padding:0 10px;cursor:pointer;height:26px;white-space:nowrap}
.wv-seg button:last-child{border-right:0}
.wv-seg button[aria-pressed=true]{background:$selbg;box-shadow:inset 0 -2px $sel;font-weight:600}
.wv-seg span{align-self:center;min-width:52px;text-align:center;border-right:1px solid $stroke;line-height:26px;background:$raise}
.wv-find{height:28px;border:1px solid $stroke;border-radius:4px;background:$raise;padding:0 8px;display:inline-flex;align-items:center;gap:6px;min-width:90px;flex:0 9999 228px}
.wv-view .wv-find input:focus-visible{outline:none}
.wv-find input{border:0;background:none;min-width:0;text-overflow:ellipsis;flex:1;height:26px;padding:0;box-shadow:none}
.wv-find:focus-within{outline:2px solid $sel;outline-offset:-1px}
.wv-find output{color:$ink2;font-size:12px;white-space:nowrap}
.wv-find:focus-within,.wv-find:has(input:not(:placeholder-shown)){min-width:196px}
.wv-find:focus-within kbd,.wv-find:has(input:not(:placeholder-shown)) kbd{display:none}
.wv-label,.wv-note{color:$ink2}
.wv-label{white-space:nowrap}
.wv-sec{padding:10px 16px;border-bottom:1px solid $line}
.wv-sec h3{margin:0 0 6px;font-size:12px;line-height:16px;font-weight:600;color:$ink2;display:flex;gap:6px;align-items:baseline}
.wv-sec h3 .wv-note{margin-left:auto;font-weight:400}
.wv-sec p{margin:0 0 4px;overflow-wrap:anywhere}
.wv-view h2{margin:2px 0;font-size:16px;line-height:20px;font-weight:600;white-space:nowrap}
.wv-view h2,.wv-kv dd,.wv-view th,.wv-view td,.wv-code{overflow:hidden;text-overflow:ellipsis}
.wv-kv{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:2px 12px;margin:0}
.wv-kv dt,.wv-kv dd{margin:0;padding:0;width:auto;font-weight:400}
.wv-kv dt{color:$ink2}.wv-kv dd{text-align:right;white-space:nowrap}
.wv-view table{border-collapse:collapse;width:100%;font-size:12px;line-height:16px;table-layout:auto;margin:0;border:0}
.wv-view th,.wv-view td{padding:2px 0 2px 8px;text-align:right;font-weight:400;white-space:nowrap;border:0;background:none;max-width:220px}
.wv-view th{color:$ink2}
.wv-view th:first-child,.wv-view td:first-child{text-align:left;padding-left:0}
.wv-code{background:var(--jp-cell-editor-background,$lvl1);border:1px solid var(--jp-cell-editor-border-color,$line);border-radius:2px;font:12px/18px $code-font;padding:3px 8px 3px 0;white-space:pre;box-shadow:inset 3px 0 $sel}
.wv-code i{font-style:normal;display:inline-block;min-width:32px;text-align:right;padding-right:8px;color:$ink2}
.wv-link{border:0;background:none;padding:0;color:$anchor!important;cursor:pointer}
.wv-link:hover{text-decoration:underline}
.wv-mono{font:12px/16px $code-font}
.wv-message{position:absolute;inset:0;display:flex;flex-direction:column;align-items:center;justify-content:center;gap:10px;padding:24px;text-align:center;color:$ink2}
.wv-error{max-width:560px;border:1px solid $bad;background:$badbg;color:$ink;border-radius:6px;padding:12px 16px;text-align:left;overflow-wrap:anywhere;max-height:100%;overflow:auto}
.wv-error b{display:block;margin-bottom:4px}
.wv-sr{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
.wv-view [hidden]{display:none!important}
`;

/**
 * Limits every rule to one view: styles of several views, and of the host, share the page. `$ink`
 * stands for `var(--wb-ink)`.
 */
export function scoped(view: string, css: string): string {
  return css.replace(/\$([\w-]+)/g, 'var(--wb-$1)').replace(/[^{}]+\{/g, (chunk) => {
    if (chunk.trim().startsWith('@')) return chunk;
    const selectors = chunk.slice(0, -1).split(',');
    const limited = selectors.map((selector) => {
      const own = selector.trim();
      return own.startsWith('.wv-view')
        ? own.replace('.wv-view', `.wv-view.wv-${view}`)
        : `.wv-${view} ${own}`;
    });
    return `${limited.join(',')}{`;
  });
}
