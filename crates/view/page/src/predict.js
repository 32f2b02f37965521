// Predictions for meshes that are dropped on the page, by the model in it. Nothing leaves the page.

import { inflate } from './data.js';

/**
 * A function that opens a model, and then predicts for mesh files. It runs in a worker, made from its source, or in the page:
 * it refers to nothing outside of itself.
 */
function engine() {
  let setup = null;
  let exports = null;
  const call = (name, inputs) => {
    inputs.forEach((bytes, i) => {
      const start = exports.input(i, bytes.length);
      new Uint8Array(exports.memory.buffer, start, bytes.length).set(bytes);
    });
    const output = () => new TextDecoder().decode(new Uint8Array(exports.memory.buffer, exports.output(), exports.output_length()));
    let right;
    try {
      right = exports[name]();
    } catch (error) {
      // The module is in no known state: the next call starts another one.
      const problem = output() || error.message;
      exports = null;
      throw new Error(`The prediction was stopped: ${problem}`);
    }
    if (!right) throw new Error(output());
    return output();
  };
  return async (message) => {
    if (message.program) setup = { module: await WebAssembly.compile(message.program), inputs: [message.model, message.template] };
    if (!exports) {
      ({ exports } = await WebAssembly.instantiate(setup.module));
      call('open', setup.inputs);
    }
    return message.file && call('predict', [new TextEncoder().encode(message.name), message.file]);
  };
}

/** The engine in a worker, so that the page stays usable. */
function inWorker() {
  const answer = `const run = (${engine})();
    onmessage = ({ data }) => run(data).then((output) => postMessage({ output }), (error) => postMessage({ problem: error.message }));`;
  const address = URL.createObjectURL(new Blob([answer], { type: 'text/javascript' }));
  const worker = new Worker(address);
  return (message) => new Promise((done, fail) => {
    worker.onmessage = ({ data }) => (data.problem === undefined ? done(data.output) : fail(new Error(data.problem)));
    worker.onerror = (event) => { event.preventDefault(); fail(new Error('The worker does not start.')); };
    worker.postMessage(message);
  });
}

export class Predictor {
  /** The predictor of the page; null if there is no model in it. */
  static ofPage() {
    return document.getElementById('program') && new Predictor();
  }

  async start() {
    const [program, model, template] = await Promise.all(['program', 'model', 'template'].map((id) =>
      inflate(document.getElementById(id).textContent)));
    for (const make of [inWorker, engine]) {
      try {
        const run = make();
        await run({ program, model, template });
        return run;
      } catch (error) {
        // Without workers the page computes itself, and is not usable meanwhile.
        if (make === engine) throw error;
      }
    }
  }

  /** Description and blocks of a page with the prediction for a file. */
  async predict(name, file) {
    this.run ??= this.start();
    const output = await (await this.run)({ name, file });
    return JSON.parse(output);
  }
}
