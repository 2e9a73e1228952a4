import type { ModeState } from '@torch-workbench/records';
import { BadgeView } from '../controls/badge';
import type { Popover } from '../controls/popover';
import { Segments, type ModeActions } from '../controls/segments';
import { h, setShown, setText } from '../dom';
import { oneLine } from '../format';
import { icon } from '../icons';
import type { Row } from './context';

interface ModeGroup {
  readonly el: HTMLElement;
  update(mode: ModeState, locked: boolean): void;
}

/** Row 2: every mode this version has, each with its measured effect. */
export function modesRow(actions: ModeActions, popover: Popover): Row {
  const hint = h('div', { class: 'wb-badge is-none wb-modes-hint' });
  hint.append(
    h('strong', {}, icon('clock', 12), h('span', {}, 'Effects are measured when you switch.')),
  );
  const el = h('div', { class: 'wb-row wb-modes', role: 'group', 'aria-label': 'Modes' });
  let names = '';
  let groups: ModeGroup[] = [];
  return {
    el,
    update({ model, locked }) {
      const { modes, status, step } = model.state;
      const next = modes.map((mode) => mode.name).join();
      if (next !== names) {
        names = next;
        groups = modes.map(() => group(actions, popover));
        el.replaceChildren(...groups.map((one) => one.el), hint);
      }
      for (const [i, mode] of modes.entries()) groups[i]?.update(mode, locked !== '');
      const quiet = modes.every((mode) => ['baseline', 'todo'].includes(mode.badge.kind));
      setShown(hint, status === 'idle' && step === 0 && quiet);
      el.classList.toggle('is-quiet', !hint.hidden);
    },
  };
}

function group(actions: ModeActions, popover: Popover): ModeGroup {
  const label = h('span', { class: 'wb-label' });
  const segments = new Segments(actions, popover);
  const badge = new BadgeView(popover, actions);
  return {
    el: h('div', { class: 'wb-mode' }, label, segments.el, badge.el),
    update(mode, locked) {
      setText(label, oneLine(mode.label, 40));
      segments.update(mode, locked);
      badge.update(mode);
    },
  };
}
