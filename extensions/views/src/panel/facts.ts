import type { Fact } from '@torch-workbench/records';
import { h, setClass } from '../dom';
import { oneLine } from '../format';

/** A table of labels and values; `code` sets the labels in the code font. */
export class FactTable {
  readonly el = h('table', { class: 'wb-kv' });
  private shown = '';

  update(facts: readonly Fact[], code = false): void {
    const key = JSON.stringify(facts);
    if (key === this.shown) return;
    this.shown = key;
    setClass(this.el, 'is-code', code);
    const rows = facts.map(({ label, value }) => {
      const name = oneLine(label, 60);
      const head = h('th', { scope: 'row', title: oneLine(label, 400) });
      head.append(code ? h('code', {}, name) : name);
      return h('tr', {}, head, h('td', { title: oneLine(value, 400) }, oneLine(value, 90)));
    });
    this.el.replaceChildren(h('tbody', {}, ...rows));
  }
}
