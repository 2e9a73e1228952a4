import { Button } from '../controls/button';
import {
  accuracyChart,
  liveMemory,
  liveMemoryStrip,
  lossChart,
  memoryChart,
  StepView,
} from '../curves';
import { h, setClass, setShown, setText } from '../dom';
import type { ExperimentModel } from '../kernel';
import type { PanelContext, Row } from './context';
import { accuracyData, lossData } from './metric-data';

const HEIGHT = 164;
const STRIP_HEIGHT = 44;

/**
 * Row 3: live loss and, where there is one, accuracy, over the same steps; memory of the last
 * captured step, or the way to its first capture; and memory while it trains.
 */
export function chartsRow(context: PanelContext, lossName: string): Row {
  const view = new StepView();
  const loss = lossChart(lossName, HEIGHT, view);
  const accuracy = accuracyChart(HEIGHT, view);
  const memory = memoryChart(HEIGHT);
  const strip = liveMemoryStrip(STRIP_HEIGHT);
  const capture = new Button('is-small', { label: 'Capture next step', icon: 'camera' }, () => {
    void context.run('capture', { what: 'memory' }).then((done) => {
      if (done) setText(note, 'The next step is being captured.');
    });
  });
  const note = h('p', {}, 'No step has been captured yet.');
  const empty = h('div', { class: 'wb-placeholder' }, h('h3', {}, 'Memory'), note, capture.el);
  const charts = [loss.el, accuracy.el, empty, memory.el, strip.el];
  const el = h('div', { class: 'wb-row wb-charts' }, ...charts);
  setShown(memory.el, false);
  return {
    el,
    update({ model, connection, locked }) {
      loss.update(lossData(model, connection === 'live'));
      const found = accuracyData(model, connection === 'live');
      setShown(accuracy.el, found !== null);
      setClass(el, 'has-accuracy', found !== null);
      if (found) accuracy.update(found);
      capture.set({ disabled: locked || false });
      setShown(empty, model.chart === null);
      setShown(memory.el, model.chart !== null);
      if (model.chart) memory.update(model.chart);
      strip.update(liveMemory(model.curves, isPlayed(model)));
    },
    dispose() {
      loss.dispose();
      accuracy.dispose();
      memory.dispose();
      strip.dispose();
    },
  };
}

/** Whether steps run on a simulated GPU; the kernel names it among its facts. */
function isPlayed({ state }: ExperimentModel): boolean {
  return state.facts.some(({ label }) => label === 'Card');
}
