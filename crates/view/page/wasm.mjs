// Builds `crates/wasm`, optimises it, and stores it deflated, for the pages of the command.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { homedir, tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import zopfli from '@gfx/zopfli';

const TARGET = 'wasm32-unknown-unknown';
const FEATURES = ['simd', 'bulk-memory', 'sign-ext', 'mutable-globals', 'nontrapping-float-to-int', 'multivalue', 'reference-types'];
const root = resolve('../../..');
// The program has no paths of this machine in its messages.
const places = [[root, '.'], [join(process.env.CARGO_HOME ?? join(homedir(), '.cargo'), 'registry/src'), 'registry']];
const flags = ['-Ctarget-feature=+simd128', ...places.map(([from, to]) => `--remap-path-prefix=${from}=${to}`)];
const run = (program, list, options) => execFileSync(program, list, { stdio: 'inherit', ...options });
const folder = mkdtempSync(join(tmpdir(), 'gemcnn-wasm-'));
try {
  run('cargo', ['build', '--release', '--locked', '--target', TARGET, '--target-dir', join(root, 'target')],
    { cwd: join(root, 'crates/wasm'), env: { ...process.env, CARGO_ENCODED_RUSTFLAGS: flags.join('\x1f') } });
  const [built, small] = [join(root, 'target', TARGET, 'release/gemcnn_wasm.wasm'), join(folder, 'small.wasm')];
  run('npx', ['wasm-opt', '-Oz', ...FEATURES.map((name) => `--enable-${name}`), built, '-o', small]);
  const program = readFileSync(small);
  // 4 % smaller than by zlib.
  const packed = await zopfli.deflateAsync(program, { numiterations: 5 });
  writeFileSync(join(root, 'crates/cli/src/view/predict.wasm.deflate'), packed);
  console.log(`predict.wasm.deflate: ${program.length} bytes, ${packed.length} deflated`);
} finally {
  rmSync(folder, { recursive: true });
}
