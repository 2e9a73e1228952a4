import type { Contents } from '@jupyterlab/services';
import { describe, expect, it } from 'vitest';
import { base64, fileName, saveFile } from '../../src/documents/save';

describe('fileName', () => {
  it('keeps words and the step, whatever the experiment is called', () => {
    expect(fileName('early exit · step 1,042', 'graph.safetensors', 1)).toBe(
      'early-exit-step-1042.graph.safetensors',
    );
    expect(fileName('../../etc/passwd', 'memory.safetensors', 1)).toBe(
      'etc-passwd.memory.safetensors',
    );
    expect(fileName('· / ·', 'diff.safetensors', 2)).toBe('diff-2.diff.safetensors');
  });
});

describe('base64', () => {
  it('gives back the bytes of a record larger than one piece', () => {
    const bytes = Uint8Array.from({ length: 100_000 }, (_, index) => (index * 7) % 256);
    const back = Uint8Array.from(atob(base64(bytes.buffer)), (one) => one.charCodeAt(0));
    expect(back).toEqual(bytes);
  });
});

describe('saveFile', () => {
  it('takes the first free name of the folder', async () => {
    const saved: string[] = [];
    const there = [{ name: 'a-step-1.graph.safetensors' }];
    const contents = {
      get: async () => ({ content: there }),
      save: async (path: string) => saved.push(path),
    } as unknown as Contents.IManager;
    const bytes = new ArrayBuffer(3);
    const path = await saveFile(contents, 'notes', 'a · step 1', 'graph.safetensors', bytes);
    expect(path).toBe('notes/a-step-1-2.graph.safetensors');
    expect(saved).toEqual([path]);
  });
});
