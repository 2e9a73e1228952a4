// Pictures of the graph view to look at: `node views/demo/graph-shots.mjs RECORDS OUT [SCENE ...]`.
// RECORDS is what graph_records.py and diff_records.py wrote. A scene is a record, keys to press and what to click; each
// is drawn light and dark in Chromium, and the time from record to first drawing is printed.
import { Stage } from './stage.mjs';

const [records, out, ...wanted] = process.argv.slice(2);

/** `graph+flow` is a graph with a strip below. Words are typed into the search, `text=` and CSS selectors are clicked, `key:` is pressed. */
const SCENES = {
  exit: ['early_exit'],
  exit_node: ['early_exit', 'find:norm block2', 'click:.wv-legend summary'],
  exit_gradient: ['early_exit', 'text=Gradient norm', 'find:block3 batch_norm'],
  exit_path: ['early_exit', 'find:head linear', 'key:p'],
  exit_holders: ['early_exit', 'find:block2 conv2d', 'key:h'],
  exit_unreached: ['early_exit', 'find:rotation'],
  exit_module: ['early_exit', 'find:block2'],
  exit_time: ['early_exit', 'text=Time'],
  exit_table: ['early_exit', 'text=Gradient norm', 'key:t'],
  dtype: ['bf16', 'text=Dtype'],
  dtype_node: ['bf16', 'text=Dtype', 'find:norm block2', 'key:f'],
  dtype_table: ['bf16', 'text=Dtype', 'key:t'],
  dtype_unknown: ['compiled', 'text=Dtype'],
  asking: ['asking'],
  asking_card: ['asking', 'find:if sure', 'text=Gradient norm'],
  asking_bars: ['asking', 'find:batch_norm block2', 'click:.wv-sec details summary'],
  asking_loop: ['asking', 'find:while', 'key:-'],
  asking_taken: ['asking_taken'],
  asking_far: ['asking', 'key:f', 'key:-'],
  asking_near: ['asking', 'find:if sure', 'key:-', 'key:-'],
  asking_table: ['asking', 'find:if sure', 'key:t'],
  bert: ['bert'],
  bert_gradient: ['bert', 'text=Gradient norm', 'key:f'],
  bert_layers: ['bert', 'find:layer 0'],
  resnet: ['resnet50'],
  resnet_time: ['resnet50', 'text=Time', 'key:f'],
  dense: ['dense', 'key:f'],
  compiled: ['compiled'],
  compiled_open: ['compiled', 'find:layers.1.up', 'key:f'],
  compiled_node: ['compiled', 'find:layers.1.out mm'],
  compiled_table: ['compiled', 'find:layers.1.out mm', 'key:t'],
  compiled_blocks: ['compiled_blocks'],
  compiled_blocks_open: ['compiled_blocks', 'text=Gradient norm', 'find:block2.conv'],
  non_finite: ['non_finite', 'text=Gradient norm', 'click:.wv-banner button'],
  chain: ['chain'],
  hostile: ['hostile', 'find:img', 'text=Gradient norm'],
  strip: ['flow_graph+flow_exit'],
  strip_step: ['flow_graph+flow_exit', 'strip:Home ArrowDown Shift+ArrowRight'],
  strip_gone: ['flow_graph+flow_exit', 'find:block3', 'strip:End Shift+ArrowLeft'],
  strip_table: ['flow_graph+flow_exit', 'strip:End', 'key:t'],
  strip_deep: ['flow_deep_graph+flow_deep', 'strip:Home'],
  strip_long: ['flow_graph+flow_long', 'strip:End'],
  diff_exit: ['diff_early_exit'],
  diff_exit_node: ['diff_early_exit', 'key:n', 'key:n', 'key:n'],
  diff_exit_removed: ['diff_early_exit', 'text=Removed'],
  diff_exit_a: ['diff_early_exit', 'click:.wv-side .letter'],
  diff_exit_only: ['diff_early_exit', 'key:o'],
  diff_exit_table: ['diff_early_exit', 'key:t'],
  diff_bf16: ['diff_bf16'],
  diff_bf16_all: ['diff_bf16', 'text=All', 'key:f'],
  diff_bf16_node: ['diff_bf16', 'key:n', 'key:n'],
  diff_equal: ['diff_equal'],
  diff_loop: ['diff_loop'],
  diff_loop_all: ['diff_loop', 'text=All', 'key:f'],
  diff_chain: ['diff_chain', 'key:n'],
};

async function act(tab, action) {
  const [verb, what] = [
    action.slice(0, action.search(/[:=]/)),
    action.slice(action.search(/[:=]/) + 1),
  ];
  if (verb === 'key') {
    await tab.locator('canvas.wv-surface').focus();
    await tab.keyboard.press(what);
  } else if (verb === 'strip') {
    await tab.locator('.wv-flow canvas').focus();
    for (const key of what.split(' ')) await tab.keyboard.press(key);
  } else if (verb === 'find') {
    await tab.locator('input[type=search]').fill(what);
    await tab.waitForTimeout(250);
  } else
    await tab
      .locator(verb === 'text' ? `button:has-text("${what}")` : what)
      .first()
      .click();
}

function scriptOf(query) {
  if (query.has('flow')) return 'scrub';
  return query.get('record')?.startsWith('/diff_') ? 'diff' : 'graph';
}

const stage = await Stage.open({ records, out, scripts: ['graph', 'diff', 'scrub'], scriptOf });
for (const name of wanted.length > 0 ? wanted : Object.keys(SCENES)) {
  const [record, ...actions] = SCENES[name];
  const [graph, flow] = record.split('+');
  const below = flow ? `&flow=/${flow}.wb` : '';
  await stage.shoot(name, `record=/${graph}.wb${below}`, async (tab) => {
    for (const action of actions) await act(tab, action);
  });
}
await stage.close();
