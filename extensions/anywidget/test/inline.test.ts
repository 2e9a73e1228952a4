import { describe, expect, it, vi } from 'vitest';
import type { KernelStore, OpenRequest } from '@torch-workbench/views';
import { inlineView } from '../src/adapters/inline';
import type { WidgetModel } from '../src/adapters/host';

describe('a view below the panel', () => {
  it('that fails late leaves alone what is shown in its place by then', async () => {
    const refuse: ((reason: Error) => void)[] = [];
    const fetchRecord = () => new Promise<ArrayBuffer>((_, reject) => refuse.push(reject));
    const model = { on: vi.fn(), off: vi.fn(), send: vi.fn() } as unknown as WidgetModel;
    const open = inlineView(model, { fetchRecord } as unknown as KernelStore);
    const request: OpenRequest = { kind: 'graph', experiment: 'e1', capture: 'g1' };
    const host = document.createElement('div');
    const close = open(request, host);
    close?.();
    host.textContent = 'another view';
    refuse[0]?.(new Error('late'));
    await new Promise((resolve) => setTimeout(resolve));
    expect(host.textContent).toBe('another view');
    open(request, host);
    refuse[1]?.(new Error('gone'));
    await vi.waitFor(() => expect(host.textContent).toContain('gone. In a cell, wb.graph('));
  });
});
