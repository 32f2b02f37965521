// Bundles the front end. The first line of the bundle has a checksum of the sources, which a test compares.

import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { build } from 'esbuild';

const sources = createHash('sha256');
for (const name of readdirSync('src').sort()) sources.update(readFileSync(`src/${name}`));
const options = { bundle: true, minify: true, legalComments: 'none', logLevel: 'info' };
await build({
  ...options, entryPoints: ['src/main.js'], outfile: 'dist/page.js', format: 'iife', target: 'es2022',
  banner: { js: `/* sources ${sources.digest('hex')}; contains three.js, MIT licence, copyright 2010-2026 three.js authors */` },
});
await build({ ...options, entryPoints: ['src/page.css'], outfile: 'dist/page.css' });
