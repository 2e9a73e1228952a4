import { h } from '../dom';

/**
 * One line of Python, coloured with the editor's own theme. A line alone cannot say whether it is
 * inside a long string, so this marks only what a line shows: keywords, numbers, strings, comments
 * and attributes.
 */
export function pythonLine(text: string): DocumentFragment {
  const line = document.createDocumentFragment();
  let plain = '';
  const flush = (): void => {
    if (plain) line.append(plain);
    plain = '';
  };
  for (const match of text.matchAll(TOKENS)) {
    const [token] = match;
    const kind = KINDS.find((name) => match.groups?.[name] !== undefined);
    if (!kind) {
      plain += token;
      continue;
    }
    flush();
    line.append(h('span', { class: `py-${kind}` }, token));
  }
  flush();
  return line;
}

const KINDS = ['comment', 'string', 'number', 'keyword', 'attribute', 'operator'] as const;

const KEYWORDS =
  'and|as|assert|async|await|break|class|continue|def|del|elif|else|except|False|finally|for|from|' +
  'global|if|import|in|is|lambda|None|nonlocal|not|or|pass|raise|return|True|try|while|with|yield';

const TOKENS = new RegExp(
  [
    '(?<comment>#.*)',
    `(?<string>[rbfuRBFU]{0,2}(?:"(?:[^"\\\\]|\\\\.)*"?|'(?:[^'\\\\]|\\\\.)*'?))`,
    `(?<keyword>\\b(?:${KEYWORDS})\\b)`,
    '(?<number>\\b\\d[\\d_.]*(?:[eE][+-]?\\d+)?\\b)',
    '(?<attribute>(?<=\\.)[A-Za-z_]\\w*)',
    '\\w+',
    '(?<operator>[-+*/%=<>!&|^~@]+)',
    '\\s+|.',
  ].join('|'),
  'g',
);
