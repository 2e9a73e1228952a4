// Pictures of a report to look at: `node views/demo/report-shots.mjs VIEW RECORDS OUT SCENE ...`.
// VIEW is `compile` or `compare`, RECORDS what compile_records.py or compare_records.py wrote, a scene
// `name=record;action;action`: keys, clicks on a selector (`click:`), words to look for (`find:`).
// SIZE=1040x620 THEMES=light,dark,contrast
import { Stage } from './stage.mjs';

const [view, records, out, ...wanted] = process.argv.slice(2);
const [width, height] = (process.env.SIZE ?? '1040x620').split('x').map(Number);
const themes = (process.env.THEMES ?? 'light,dark').split(',');
const stage = await Stage.open({ records, out, scripts: [view] });
for (const scene of wanted) {
  const [name, rest] = [scene.slice(0, scene.indexOf('=')), scene.slice(scene.indexOf('=') + 1)];
  const [record, ...actions] = rest.split(';');
  const query = record.startsWith('error') ? record : `record=/${record}.wb`;
  const act = async (tab) => {
    for (const action of actions) {
      const [kind, what] = [action.split(':')[0], action.slice(action.indexOf(':') + 1)];
      if (kind === 'click') await tab.locator(what).first().click();
      else if (kind === 'find') await tab.getByRole('searchbox').fill(what);
      else await tab.keyboard.press(action);
    }
  };
  await stage.shoot(name, query, act, { width, height, themes });
}
await stage.close();
