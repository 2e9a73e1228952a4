/** Memory files as torch writes them, put into a folder of the test's server. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, type IJupyterLabPageFixture } from '@jupyterlab/galata';
import type { APIRequestContext } from '@playwright/test';
import { python } from './helpers';

const checkout = path.resolve(__dirname, '../..');

/** A snapshot with two streams, a pending free, a release and a refusal; and its saved record. */
const WRITE = `
import pickle, sys
from workbench.memory import memory

MIB, BASE = 1 << 20, 0x7F0000000000
trace, time = [], 0

def say(action, at, size, stream=0):
    global time
    time += 1000
    where = {"device_free": at} if action == "oom" else {"addr": BASE + at}
    frames = [{"filename": "/home/ana/train.py", "line": 40 + size % 7, "name": "step"}]
    trace.append({"action": action, "size": size, "stream": stream, "time_us": time,
                  "frames": frames, **where})

for segment in range(12):
    say("segment_alloc", segment * 64 * MIB, 20 * MIB, 7 if segment > 9 else 0)
    for block in range(3):
        at = segment * 64 * MIB + block * 6 * MIB
        say("alloc", at, 6 * MIB - 512 * segment - 100, 7 if segment > 9 else 0)
for segment in range(0, 8, 2):
    at = segment * 64 * MIB + 6 * MIB
    say("free_requested", at, 6 * MIB - 512 * segment - 100)
    if segment != 4:
        say("free_completed", at, 6 * MIB - 512 * segment - 100)
say("oom", 30 * MIB, 90 * MIB)
say("segment_free", 900 * 64 * MIB, 20 * MIB)
segments = []
for segment in range(12):
    stream = 7 if segment > 9 else 0
    blocks = []
    for block in range(3):
        freed = block == 1 and segment in (0, 2, 6)
        waits = block == 1 and segment == 4
        state = "inactive" if freed else "active_pending_free" if waits else "active_allocated"
        blocks.append({"address": BASE + segment * 64 * MIB + block * 6 * MIB, "size": 6 * MIB,
                       "requested_size": 6 * MIB - 512 * segment - 100, "state": state})
    blocks.append({"address": BASE + segment * 64 * MIB + 18 * MIB, "size": 2 * MIB,
                   "requested_size": 0, "state": "inactive"})
    segments.append({"device": 0, "address": BASE + segment * 64 * MIB, "total_size": 20 * MIB,
                     "stream": stream, "segment_type": "large", "segment_pool_id": (0, 0),
                     "is_expandable": False, "blocks": blocks})
with open(sys.argv[1] + "/snapshot.pickle", "wb") as file:
    pickle.dump({"segments": segments, "device_traces": [trace]}, file, protocol=4)
memory(sys.argv[1] + "/snapshot.pickle").save(sys.argv[1] + "/snapshot.memory.safetensors")
`;

/** Blocks that come and go in waves, on as many devices as there are numbers of events. */
const WRITE_LONG = `
import math, pickle, sys

MIB, BASE = 1 << 20, 0x7F0000000000

def trace(num_events):
    events, held, at = [], [], 0
    while len(events) < num_events:
        wave = math.sin(at / num_events * 14) + 0.6 * math.sin(at / num_events * 47)
        wanted = int(22 + 12 * wave)
        at += 1
        if len(held) < wanted:
            block = next(one for one in range(64) if one not in held)
            held.append(block)
            action = "alloc"
        else:
            block = held.pop(0)
            action = "free_completed"
        events.append({"action": action, "addr": BASE + block * MIB, "size": MIB, "stream": 0,
                       "time_us": 1_000_000 + 11 * len(events)})
    return events, held

segments, traces = [], []
for device, count in enumerate(map(int, sys.argv[2:])):
    events, held = trace(count)
    traces.append(events)
    blocks = [{"address": BASE + one * MIB, "size": MIB, "requested_size": MIB if one in held else 0,
               "state": "active_allocated" if one in held else "inactive"} for one in range(64)]
    segments.append({"device": device, "address": BASE, "total_size": 64 * MIB, "stream": 0,
                     "segment_type": "large", "segment_pool_id": (0, 0), "is_expandable": False,
                     "blocks": blocks})
with open(sys.argv[1] + "/long.pickle", "wb") as file:
    pickle.dump({"segments": segments, "device_traces": traces}, file, protocol=4)
`;

/** Folders of what was made, by the code and its arguments: each is made once by a worker. */
const made = new Map<string, string>();

/** Runs code that writes files into the folder that is its first argument; gives one of them. */
export function madeFile(name: string, code: string, ...args: string[]): string {
  const key = [code, ...args].join('\0');
  let folder = made.get(key);
  if (folder === undefined) {
    folder = mkdtempSync(path.join(tmpdir(), 'workbench-made-'));
    execFileSync(python, ['-c', code, folder, ...args], { cwd: checkout });
    made.set(key, folder);
  }
  return path.join(folder, name);
}

process.once('exit', () => {
  for (const folder of made.values()) rmSync(folder, { recursive: true });
});

/** Puts the snapshot, or as a file of that name its saved record, into a folder of the server. */
export async function putSnapshot(
  page: IJupyterLabPageFixture,
  target: string,
  file: 'snapshot.pickle' | 'snapshot.memory.safetensors' = 'snapshot.pickle',
): Promise<void> {
  await put(page, madeFile(file, WRITE), target);
}

/** A step of a small experiment, whose batch is recorded. */
const WRITE_STEP = `
import sys, torch, workbench as wb

torch.manual_seed(0)
x, y = torch.randn(256, 64), torch.randint(0, 3, (256,))
model = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 3))
exp = wb.Experiment(model, (x, y), batch_size=64, epochs=1, name="saved", runs=sys.argv[1])
wb.memory(exp).save(sys.argv[1] + "/step.memory.safetensors")
`;

/** Puts the saved record of a step there. */
export async function putStep(page: IJupyterLabPageFixture, target: string): Promise<void> {
  await put(page, madeFile('step.memory.safetensors', WRITE_STEP), target);
}

/** Puts a snapshot of so many events a device there; it is too long to pass through the page. */
export async function putLong(
  request: APIRequestContext,
  target: string,
  ...events: number[]
): Promise<void> {
  const file = madeFile('long.pickle', WRITE_LONG, ...events.map(String));
  const content = readFileSync(file).toString('base64');
  const url = `/api/contents/${target.split('/').map(encodeURIComponent).join('/')}`;
  const data = { type: 'file', format: 'base64', content };
  expect(await request.put(url, { data })).toBeOK();
}

/** A pickle that would run a program in whoever unpickles it carelessly. */
export async function putHostile(page: IJupyterLabPageFixture, target: string): Promise<void> {
  const pickle = Buffer.from("cos\nsystem\n(S'touch /tmp/workbench-was-here'\ntR.");
  await page.contents.uploadContent(pickle.toString('base64'), 'base64', target);
}

/** One of the traces of real GPUs beside the checkout; null where they are not. */
export function realTrace(name: string): string | null {
  const file = path.resolve(checkout, '../shared/traces', name);
  return existsSync(file) ? file : null;
}

/** Puts a file of this machine there. */
export async function put(
  page: IJupyterLabPageFixture,
  file: string,
  target: string,
): Promise<void> {
  await page.contents.uploadContent(readFileSync(file).toString('base64'), 'base64', target);
}
