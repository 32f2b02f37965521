// The panel of a picked vertex: all its values.

import { css, grouped, h, number, percent, replace } from './dom.js';
import { UNKNOWN } from './data.js';

const triple = (v) => v.map((x) => number(x, 5)).join(', ');
const MOST_BARS = 6;

function pair(name, ...value) {
  return [h('dt', {}, name), h('dd', {}, ...value)];
}

function section(title, open, ...children) {
  return h('details', { open }, h('summary', {}, title), ...children);
}

function className(table, value) {
  return value === UNKNOWN || value === undefined ? 'unknown' : table.names[value];
}

function label(field, value, classes) {
  const table = classes[field.table];
  return [h('i', { className: 'swatch', style: { background: css(table.colours[value] ?? [128, 132, 138]) } }), className(table, value)];
}

function valueOf(field, place, classes) {
  const value = field.values[place];
  if (field.kind === 'labels') return label(field, value, classes);
  if (field.kind === 'colours') {
    const rgb = [value >> 16, (value >> 8) & 255, value & 255];
    return [h('i', { className: 'swatch', style: { background: css(rgb) } }), rgb.join(', ')];
  }
  if (field.kind === 'vectors') return [triple([...field.vectors.subarray(3 * place, 3 * place + 3)])];
  return [number(value)];
}

function bars(fields, place, name) {
  const values = fields.map((field) => [field, field.values[place]]).sort((a, b) => b[1] - a[1]).slice(0, MOST_BARS);
  return h('ul', { className: 'bars' }, values.map(([field, value]) =>
    h('li', {}, h('span', { className: 'bar-name' }, name(field)), h('span', { className: 'track' },
      h('i', { style: { width: `${100 * Math.max(0, Math.min(1, value))}%` } })), h('span', { className: 'figure' }, percent(value)))));
}

/** Small bars of the features of a vertex, each within the range of its field. */
function featureList(fields, place) {
  return h('ul', { className: 'features' }, fields.map((field) => {
    const [low, high] = field.range;
    const share = high > low ? (field.values[place] - low) / (high - low) : 0.5;
    return h('li', {}, h('span', { className: 'bar-name' }, field.name), h('span', { className: 'track' },
      h('i', { style: { width: `${100 * share}%` } })), h('span', { className: 'figure' }, number(field.values[place], 4)));
  }));
}

/** Shows a pick: { model, vertex, face, triangle }. */
export function inspect(element, pick, { classes, counterparts, goTo, clear }) {
  if (!pick) {
    replace(element);
    element.hidden = true;
    return;
  }
  element.hidden = false;
  const { model, vertex, face } = pick;
  const fields = [...model.fields.values()];
  const place = (field) => (field.on === 'face' ? face : vertex);
  const known = fields.filter((f) => f.on === 'vertex' || face !== undefined);
  const main = known.filter((f) => !['probability', 'feature', 'errors'].includes(f.role));
  const rank = { truth: 0, prediction: 1, error: 2 };
  main.sort((a, b) => (rank[a.role] ?? 3) - (rank[b.role] ?? 3));
  const chances = known.filter((f) => f.role === 'probability');
  const features = known.filter((f) => f.role === 'feature');
  const frame = model.frame(vertex);
  const neighbours = model.neighbours(vertex);
  const wrong = model.fields.get('errors')?.values[vertex] === 1;
  replace(element,
    h('header', {}, h('h2', {}, `Vertex ${grouped(vertex)}`), wrong && h('span', { className: 'badge' }, 'wrong'),
      h('button', { className: 'quiet close', title: 'Close (Esc)', ariaLabel: 'Close', onclick: clear }, '×')),
    h('p', { className: 'hint' }, model.name),
    h('dl', {}, pair('position', triple(model.position(vertex))),
      face !== undefined && pair('face', grouped(face)),
      main.map((f) => pair(f.on === 'face' ? `${f.name} (face)` : f.name, ...valueOf(f, place(f), classes)))),
    chances.length > 0 && section('Probabilities', true, bars(chances, vertex, (f) => className(classes[f.table ?? 0] ?? { names: [] }, f.class) ?? f.name)),
    features.length > 0 && section(`Features (${features.length})`, false, featureList(features, vertex)),
    counterparts.length > 0 && section('Corresponding points', true, h('ul', { className: 'links' }, counterparts.map(({ model: other, vertices }) =>
      h('li', {}, vertices.length ? h('button', { className: 'link', onclick: () => goTo(other, vertices[0]) }, `${other.name}: ${vertices.slice(0, 3).map(grouped).join(', ')}${vertices.length > 3 ? ' …' : ''}`)
        : h('span', { className: 'hint' }, `${other.name}: none`))))),
    section('Frame', true, h('dl', {}, frame.e1 && [pair('first axis', triple(frame.e1)), pair('second axis', triple(frame.e2))],
      pair('normal', triple(frame.normal)))),
    section(`Neighbours (${neighbours.length})`, true, h('p', { className: 'chips' }, neighbours.map((n) =>
      h('button', { className: 'chip', onclick: () => goTo(model, n) }, grouped(n))))),
  );
}
