/** Numbers and text as an SVG document holds them. */

/** A length: a hundredth of a pixel is enough. */
export function num(value: number): string {
  return String(Math.round(value * 100) / 100);
}

/** A factor, or a part of one. */
export function precise(value: number): string {
  return String(Math.round(value * 1e6) / 1e6);
}

/** Text for an attribute or an element; what XML cannot hold becomes `�`. */
export function escape(text: string): string {
  return text
    .replace(/[^\t\n\r\u{20}-\u{D7FF}\u{E000}-\u{FFFD}\u{10000}-\u{10FFFF}]/gu, '\u{FFFD}')
    .replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
}
