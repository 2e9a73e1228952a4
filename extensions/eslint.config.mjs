import js from '@eslint/js';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  {
    ignores: [
      '**/lib/**',
      '**/dist/**',
      '**/node_modules/**',
      '**/*.mjs',
      'records/src/generated/**',
    ],
  },
  js.configs.recommended,
  ...tseslint.configs.strict,
);
