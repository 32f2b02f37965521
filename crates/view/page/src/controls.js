// The panel on the left: meshes, colours, display, arrows and tools.

import { grouped, h, number, replace } from './dom.js';

const GROUPS = [
  ['Labels', (f) => f.kind === 'labels'],
  ['Values', (f) => f.kind === 'numbers' && !['probability', 'feature'].includes(f.role)],
  ['Vector lengths', (f) => f.kind === 'vectors'],
  ['Colours', (f) => f.kind === 'colours'],
  ['Probabilities', (f) => f.role === 'probability'],
  ['Features', (f) => f.role === 'feature'],
];

function fieldOptions(fields, chosen, none) {
  const groups = GROUPS.map(([name, fits]) => [name, fields.filter(fits)]).filter(([, found]) => found.length);
  return [none !== undefined && h('option', { value: '', selected: !chosen }, none),
    groups.map(([name, found]) => h('optgroup', { label: name }, found.map((f) =>
      h('option', { value: f.name, selected: f.name === chosen }, f.name))))];
}

function toggle(label, key, pressed, onclick, shortcut) {
  const button = h('button', { className: 'toggle', onclick, title: shortcut ? `Shortcut: ${shortcut}` : '' }, label);
  button.setAttribute('aria-pressed', String(Boolean(pressed)));
  button.dataset.key = key;
  return button;
}

function choice(label, name, options, chosen, onchange) {
  return h('fieldset', { className: 'choice' }, h('legend', {}, label), options.map(([value, text]) =>
    h('label', {}, h('input', { type: 'radio', name, value, checked: value === chosen, onchange: () => onchange(value) }), h('span', {}, text))));
}

export function controls(element, app) {
  const { state, data } = app;
  const fields = app.fieldList();
  const vectors = fields.filter((f) => f.kind === 'vectors');
  const select = (id, chosen, none, onchange) => h('select', { id, onchange: (e) => onchange(e.target.value) }, fieldOptions(fields, chosen, none));
  const meshes = data.description.meshes;
  const list = h('ul', { className: 'meshes' }, meshes.map((mesh, i) => {
    const box = h('input', { type: 'checkbox', checked: state.shown.has(i), onchange: () => app.toggleMesh(i) });
    const only = h('button', { className: 'quiet only', title: 'Show this mesh alone', onclick: () => app.showOnly(i) }, 'only');
    return h('li', {}, h('label', {}, box, h('span', { className: 'mesh-name', title: mesh.name }, mesh.name)), meshes.length > 1 && only,
      h('span', { className: 'hint facts-line' }, `${grouped(mesh.vertices)} vertices, ${grouped(mesh.faces)} faces`),
      mesh.facts.map(([name, value]) => h('span', { className: 'hint facts-line' }, `${name}: ${value}`)));
  }));
  const legendBox = h('div', { className: 'legend' });
  replace(element,
    predictBox(app),
    h('section', {}, h('h2', {}, meshes.length === 1 ? 'Mesh' : 'Meshes'), list),
    epochBox(app),
    h('section', {}, h('label', { htmlFor: 'field' }, h('h2', {}, 'Colour')),
      select('field', state.field, 'none', (v) => app.set({ field: v })), legendBox,
      fields.length > 1 && h('div', { className: 'row' }, h('label', { className: 'hint', htmlFor: 'compare' }, 'beside'),
        select('compare', state.compare, 'nothing', (v) => app.set({ compare: v }, true)))),
    h('section', {}, h('h2', {}, 'Display'),
      h('div', { className: 'toggles' },
        toggle('Wireframe', 'wire', state.wire, () => app.set({ wire: !state.wire }), 'W'),
        toggle('Flat', 'flat', state.flat, () => app.set({ flat: !state.flat }), 'S'),
        toggle('Borders', 'borders', state.borders, () => app.set({ borders: !state.borders }), 'O'),
        data.count > 1 || state.compare ? toggle('Link cameras', 'linked', state.linked, () => app.set({ linked: !state.linked }), 'L') : null,
        toggle('Z up', 'up', state.up === 'z', () => app.set({ up: state.up === 'z' ? 'y' : 'z' }), 'U')),
      choice('Back faces', 'back', [['same', 'same'], ['tint', 'tinted'], ['hide', 'hidden']], state.back, (back) => app.set({ back }))),
    h('section', {}, h('h2', {}, 'Arrows'),
      vectors.length > 0 && h('div', { className: 'row' }, h('label', { className: 'hint', htmlFor: 'vectors' }, 'vectors'),
        h('select', { id: 'vectors', onchange: (e) => app.set({ vectors: e.target.value }) },
          h('option', { value: '', selected: !state.vectors }, 'none'),
          vectors.map((f) => h('option', { value: f.name, selected: f.name === state.vectors }, f.name)))),
      h('div', { className: 'toggles' },
        state.vectors && toggle('Strokes', 'strokes', state.strokes, () => app.set({ strokes: !state.strokes })),
        toggle('Gauge frames', 'frames', state.frames, () => app.set({ frames: !state.frames }), 'F'),
        toggle('Transport', 'transport', state.tool === 'transport', () => app.set({ tool: state.tool === 'transport' ? 'pick' : 'transport' }), 'T')),
      (state.vectors || state.frames) && h('div', { className: 'row' }, h('label', { className: 'hint', htmlFor: 'size' }, 'size'),
        h('input', { id: 'size', type: 'range', min: -1.5, max: 1.5, step: 0.05, value: state.arrowSize, oninput: (e) => app.set({ arrowSize: e.target.valueAsNumber }, false, false) })),
      transportBox(app)),
    worstBox(app),
  );
  return legendBox;
}

/** Where a mesh gets a prediction of the model in the page. */
function predictBox(app) {
  if (!app.predictor) return null;
  const { status, problem } = app.predictions;
  const choose = h('input', { id: 'predict', type: 'file', multiple: true, onchange: () => app.predict([...choose.files]) });
  return h('section', { className: 'predict' }, h('label', { htmlFor: 'predict' }, h('h2', {}, 'Predict')),
    h('p', { className: 'hint' }, 'Drop mesh files on the page, or choose them. They stay on this computer.'), choose,
    status && h('p', { className: 'computing', role: 'status' }, status), problem && h('p', { className: 'problem', role: 'alert' }, problem));
}

/** The epochs of a live run whose predictions were shown. */
function epochBox(app) {
  const { history, shownEpoch } = app;
  if (history.length < 2) return null;
  const slider = h('input', { id: 'epoch', type: 'range', min: 0, max: history.length - 1, value: shownEpoch, onchange: () => app.showEpoch(slider.valueAsNumber) });
  return h('section', {}, h('label', { htmlFor: 'epoch' }, h('h2', {}, 'Epoch')),
    h('div', { className: 'row' }, slider, h('span', { className: 'figure' }, `${history[shownEpoch].epoch}`)));
}

function transportBox(app) {
  const { state, transport } = app;
  if (state.tool !== 'transport') return null;
  if (!transport) return h('p', { className: 'hint' }, 'Click a vertex: a tangent vector starts there. Click others to carry it along the shortest path.');
  const facts = [`${transport.path.length - 1} edges`, `length ${number(transport.length, 4)}`];
  return h('div', { className: 'transport' },
    h('div', { className: 'row' }, h('label', { className: 'hint', htmlFor: 'angle' }, 'angle'),
      h('input', { id: 'angle', type: 'range', min: 0, max: 360, value: transport.degrees, oninput: (e) => app.turnTransport(e.target.valueAsNumber) })),
    h('p', { className: 'hint' }, facts.join(', ')),
    transport.isLoop && h('p', { className: 'holonomy' }, `The loop turns the vector by ${transport.holonomy.toFixed(1)}°.`),
    h('div', { className: 'row' }, h('button', { disabled: transport.isLoop || transport.path.length < 3, onclick: () => app.extendTransport(transport.start) }, 'Close the loop'),
      h('button', { className: 'quiet', onclick: () => app.clearTransport() }, 'clear')));
}

function worstBox(app) {
  const worst = app.worst();
  if (!worst.length) return null;
  return h('section', {}, h('h2', {}, 'Largest errors'), h('ul', { className: 'worst' }, worst.map(({ model, vertex, error }) =>
    h('li', {}, h('button', { className: 'link', onclick: () => app.goTo(model, vertex) }, `vertex ${grouped(vertex)}`),
      app.models.length > 1 && h('span', { className: 'hint' }, model.name), h('span', { className: 'figure' }, number(error, 4))))));
}
