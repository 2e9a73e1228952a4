/** A stylesheet as text: the bundler inlines it (see build.mjs). */
declare module '*.css' {
  const text: string;
  export default text;
}
