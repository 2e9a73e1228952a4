// Pictures of the memory view to look at: `node views/demo/memory-shots.mjs RECORDS OUT [SCENE ...]`.
// RECORDS holds saved memory records, a scene is a record and what to do with it: keys, clicks on
// buttons (`text=`) or selectors (`click:`), points of the map (`map:x,y`) and words to look for
// (`find:`). Two records with a plus in between are shown as their diff. Each is drawn light and dark
// in Chromium (THEMES=light,dark,contrast SIZE=420x900), with the time from record to first drawing
// and, with `scrub`, the frames per second while the scrubber moves. "What if?" asks a real allocator.
import { join, resolve } from 'node:path';
import { Answerer } from './answerer.mjs';
import { Stage } from './stage.mjs';

const [records, out, ...wanted] = process.argv.slice(2);
const [width, height] = (process.env.SIZE ?? '1600x1000').split('x').map(Number);
const themes = (process.env.THEMES ?? 'light,dark').split(',');

/** `name=record,action,action`, so that any record can be looked at. */
const SCENES = wanted.map((scene) => {
  const [name, rest] = [scene.slice(0, scene.indexOf('=')), scene.slice(scene.indexOf('=') + 1)];
  const [record, ...actions] = rest.split(';');
  return { name, record, actions };
});

/** Moves the scrubber through the whole recording, frame by frame. */
async function scrub(tab) {
  return tab.evaluate(async () => {
    const canvas = document.querySelector('.wv-timeline');
    canvas.setPointerCapture = () => {}; // a made-up pointer cannot be captured
    const box = canvas.getBoundingClientRect();
    const at = (type, part) =>
      canvas.dispatchEvent(
        new PointerEvent(type, {
          button: 0,
          clientX: box.left + 72 + part * (box.width - 92),
          clientY: box.top + 80,
          bubbles: true,
        }),
      );
    at('pointerdown', 0.1);
    at('pointerup', 0.1);
    await new Promise(requestAnimationFrame);
    at('pointerdown', 0.1);
    const frames = 90;
    const began = performance.now();
    let slowest = 0;
    let before = began;
    for (let frame = 0; frame < frames; frame += 1) {
      at('pointermove', 0.1 + (0.8 * frame) / frames);
      await new Promise(requestAnimationFrame);
      await new Promise((done) => setTimeout(done));
      slowest = Math.max(slowest, performance.now() - before);
      before = performance.now();
    }
    at('pointerup', 0.9);
    const fps = (1000 * frames) / (performance.now() - began);
    return `${fps.toFixed(0)} frames/s, slowest ${slowest.toFixed(0)} ms`;
  });
}

async function act(tab, action) {
  const cut = action.search(/[:=]/);
  const [verb, what] = cut < 0 ? [action, ''] : [action.slice(0, cut), action.slice(cut + 1)];
  if (verb === 'scrub') console.log(`  ${await scrub(tab)}`);
  else if (verb === 'wait') await tab.locator(what).first().waitFor();
  else if (verb === 'key') {
    await tab.locator('canvas.wv-timeline').first().focus();
    await tab.keyboard.press(what);
  } else if (verb === 'mapkey') {
    await tab.locator('canvas.wv-map').focus();
    await tab.keyboard.press(what);
  } else if (verb === 'map' || verb === 'hover' || verb === 'chart' || verb === 'lens') {
    const [x, y] = what.split(',').map(Number);
    const selector = { chart: 'canvas.wv-timeline', lens: 'canvas.wv-lens' }[verb];
    const canvas = tab.locator(selector ?? 'canvas.wv-map').first();
    if (verb === 'hover') await canvas.hover({ position: { x, y } });
    else await canvas.click({ position: { x, y } });
  } else if (verb === 'find') await tab.locator('input[type=search]').fill(what);
  else
    await tab
      .locator(verb === 'text' ? `button:has-text("${what}")` : what)
      .first()
      .click();
}

const answerer = new Answerer();
const stage = await Stage.open({
  records,
  out,
  scripts: ['memory', 'memory-diff'],
  scriptOf: (query) => (query.has('b') ? 'memory-diff' : 'memory'),
});
for (const { name, record, actions } of SCENES) {
  const [a, b] = record.split('+');
  const query = b ? `a=/${a}.wb&b=/${b}.wb` : `record=/${a}.wb`;
  const play = async (tab) => {
    await tab.waitForTimeout(300);
    for (const action of actions) await act(tab, action);
  };
  const ask = (question) => answerer.ask(join(resolve(records), `${a}.wb`), question);
  await stage.shoot(name, query, play, { width, height, themes, exposed: { ask } });
}
await stage.close();
answerer.close();
