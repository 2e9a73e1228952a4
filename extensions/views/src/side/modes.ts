import { messageOf } from '../errors';
import { Popover } from '../controls/popover';
import { Segments, type ModeActions } from '../controls/segments';
import { drawOn, h, setAttr, setShown, setText } from '../dom';
import { oneLine } from '../format';
import type { Command, KernelModel } from '../kernel';
import type { Dispose, Store } from '../store';

export interface OfExperiment {
  readonly experiment: string;
}

/** The modes of one experiment, the same toggles as in its panel; badges become tooltips. */
export function mountModes(
  el: HTMLElement,
  store: Store<KernelModel, Command>,
  { experiment }: OfExperiment,
): Dispose {
  const rows = h('div', { class: 'wb-rows' });
  const error = h('p', { class: 'wb-side-error', role: 'alert' });
  setShown(error, false);
  const frame = h('div', { class: 'wb wb-list' }, rows, error);
  el.append(frame);
  const popover = new Popover(frame, 'left');
  const run = async (name: 'set_mode' | 'probe_modes', args: unknown): Promise<boolean> => {
    try {
      await store.send({ name, experiment, args } as Command);
      setShown(error, false);
      return true;
    } catch (reason) {
      setText(error, messageOf(reason));
      setShown(error, true);
      return false;
    }
  };
  const actions: ModeActions = {
    setMode: (mode, value) => run('set_mode', { mode, value }),
    checkAgain: () => run('probe_modes', {}),
  };
  let names = '';
  let made: { row: HTMLElement; label: HTMLElement; segments: Segments }[] = [];
  const draw = (): void => {
    const model = store.get();
    const modes = model.experiments.get(experiment)?.state.modes ?? [];
    const next = modes.map((mode) => mode.name).join();
    if (next !== names) {
      names = next;
      made = modes.map(() => {
        const label = h('span', { class: 'lab' });
        const segments = new Segments(actions, popover);
        return { label, segments, row: h('div', { class: 'wb-mrow' }, label, segments.el) };
      });
      rows.replaceChildren(...made.map((one) => one.row));
    }
    for (const [i, mode] of modes.entries()) {
      const one = made[i];
      if (!one) continue;
      setText(one.label, oneLine(mode.label, 40));
      one.segments.update(mode, model.connection !== 'live');
      const { text, detail, tooltip } = mode.badge;
      setAttr(one.label, 'title', [text, detail, tooltip].filter(Boolean).join('\n') || null);
    }
  };
  const end = drawOn(store, draw);
  return () => {
    end();
    popover.dispose();
    frame.remove();
  };
}
