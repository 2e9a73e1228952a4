/** Colours for generated C++ and Triton: comments, strings, numbers and words of the language. */
import { h } from '../dom';

const CPP =
  'alignas|auto|bool|break|case|char|const|constexpr|continue|default|double|else|extern|false|float|for|if|inline|int|int8_t|int16_t|int32_t|int64_t|long|namespace|nullptr|return|short|signed|size_t|sizeof|static|static_cast|struct|switch|template|true|typedef|typename|uint8_t|uint16_t|uint32_t|uint64_t|unsigned|using|void|volatile|while';
const PYTHON =
  'and|as|assert|break|class|continue|def|del|elif|else|except|False|finally|for|from|if|import|in|is|lambda|None|not|or|pass|raise|return|True|try|while|with|yield';

/** One pattern a language: comment, string, number, word; the group says which. */
const NUMBER = String.raw`\b(?:0[xX][\da-fA-F]+|\d[\d.]*(?:[eE][+-]?\d+)?)\w*`;
const PATTERNS = {
  cpp: `(//[^\\n]*|/\\*[^]*?\\*/|^[ \\t]*#[^\\n]*)|("(?:[^"\\\\\\n]|\\\\.)*")|(${NUMBER})|\\b(${CPP})\\b`,
  python: `(#[^\\n]*)|('''[^]*?'''|"""[^]*?"""|'(?:[^'\\\\\\n]|\\\\.)*'|"(?:[^"\\\\\\n]|\\\\.)*")|(${NUMBER})|\\b(${PYTHON})\\b`,
};
const CLASSES = ['wv-comment', 'wv-string', 'wv-number', 'wv-word'];

/** The text as parts for the page; together they are `text`, to the letter. */
export function coloured(text: string, language: string): (Node | string)[] {
  const pattern = new RegExp(language === 'C++' ? PATTERNS.cpp : PATTERNS.python, 'gm');
  const parts: (Node | string)[] = [];
  let end = 0;
  for (const found of text.matchAll(pattern)) {
    const kind = found.slice(1).findIndex((group) => group !== undefined);
    if (found.index > end) parts.push(text.slice(end, found.index));
    parts.push(h('span', { class: CLASSES[kind] ?? null }, found[0]));
    end = found.index + found[0].length;
  }
  parts.push(text.slice(end));
  return parts;
}
