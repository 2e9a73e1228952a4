// Pictures of the gradient-flow strip to look at: `node views/demo/flow-shots.mjs RECORDS OUT`.
// RECORDS is what flow_records.py wrote. Every scene is drawn light and dark in Chromium.
import { Stage } from './stage.mjs';

const [records, out, ...wanted] = process.argv.slice(2);

/** Query of the page, then keys to press on the strip. */
const SCENES = {
  exit: ['record=/flow_exit.wb&captured=42'],
  exit_cursor: ['record=/flow_exit.wb&captured=42', 'ArrowLeft', 'ArrowDown', 'Shift+ArrowLeft'],
  long: ['record=/flow_long.wb&captured=100'],
  nan: ['record=/flow_nan.wb', 'End'],
  deep: ['record=/flow_deep.wb', 'Home', 'Enter'],
  table: ['record=/flow_exit.wb', '[', 't'],
  narrow: ['record=/flow_exit.wb&captured=42&width=480'],
  empty: [''],
  error: ['error=expected a workbench.gradient_flow/1 record, got workbench.memory/2'],
};

const stage = await Stage.open({ records, out, scripts: ['flow'] });
for (const [name, [query, ...keys]] of Object.entries(SCENES)) {
  if (wanted.length > 0 && !wanted.includes(name)) continue;
  const play = async (tab) => {
    if (keys.length > 0) await tab.locator('canvas').focus();
    for (const key of keys) await tab.keyboard.press(key);
    const went = await tab.evaluate(() => document.body.dataset.went);
    if (went) console.log(`${name}  ${went}`);
  };
  await stage.shoot(name, encodeURI(query), play, { width: 1000, height: 460 });
}
await stage.close();
