// What the colours mean: classes that can be switched, or a colour bar with its range and distribution.

import { css, grouped, h, number, replace } from './dom.js';
import { ticks } from './charts.js';

const MOST_CLASSES = 200;
const BINS = 64;

/** Counts of each class over the shown meshes; the last one is unknown. */
function classCounts(fields, table) {
  const counts = new Uint32Array(table.names.length + 1);
  for (const field of fields) {
    for (const value of field.values) counts[value < 0 ? table.names.length : value]++;
  }
  return counts;
}

function classes(fields, table, changed) {
  const counts = classCounts(fields, table);
  const used = [...counts.keys()].filter((i) => counts[i] > 0);
  const list = h('ul', { className: 'classes' });
  const button = (i) => {
    const name = table.names[i] ?? 'unknown';
    const shown = !table.hidden.has(i);
    const press = (event) => {
      if (event.altKey || event.shiftKey) {
        const alone = used.every((j) => j === i || table.hidden.has(j));
        table.hidden = new Set(alone ? [] : used.filter((j) => j !== i));
      } else if (!table.hidden.delete(i)) table.hidden.add(i);
      changed();
    };
    const element = h('button', { className: 'class', title: 'Show or hide; with Shift, show only this class', onclick: press },
      h('i', { className: 'swatch', style: { background: css(table.colours[i] ?? [128, 132, 138]) } }),
      h('span', { className: 'class-name' }, name), h('span', { className: 'count' }, grouped(counts[i])));
    element.setAttribute('aria-pressed', String(shown));
    return h('li', {}, element);
  };
  replace(list, used.slice(0, MOST_CLASSES).map(button));
  const all = (shown) => () => {
    table.hidden = new Set(shown ? [] : used);
    changed();
  };
  const hint = used.length > MOST_CLASSES ? `the first ${MOST_CLASSES} of ${grouped(used.length)} classes` : `${used.length} ${used.length === 1 ? 'class' : 'classes'}`;
  return [list, h('div', { className: 'row small' }, h('span', { className: 'hint grow' }, hint),
    h('button', { className: 'quiet', onclick: all(true) }, 'all'), h('button', { className: 'quiet', onclick: all(false) }, 'none'))];
}

function histogram(fields, [low, high]) {
  const bins = new Float64Array(BINS);
  for (const field of fields) {
    for (const value of field.values) {
      if (value >= low && value <= high) bins[Math.min(BINS - 1, Math.floor(((value - low) / (high - low || 1)) * BINS))]++;
    }
  }
  return bins;
}

function bar(fields, { shades, range, full, setRange }) {
  const [width, height] = [512, 96];
  const canvas = h('canvas', { width, height, className: 'bar' });
  canvas.setAttribute('role', 'img');
  canvas.setAttribute('aria-label', `colour bar from ${number(range[0])} to ${number(range[1])}`);
  const paint = canvas.getContext('2d');
  const bins = histogram(fields, range);
  const most = Math.max(...bins) || 1;
  const shade = (t) => css(shades[Math.round(t * (shades.length - 1))]);
  for (let i = 0; i < BINS; i++) {
    const tall = Math.sqrt(bins[i] / most) * (height - 36);
    paint.fillStyle = shade((i + 0.5) / BINS);
    paint.globalAlpha = 0.55;
    paint.fillRect((i * width) / BINS, height - 28 - tall, width / BINS - 1, tall);
  }
  paint.globalAlpha = 1;
  for (let x = 0; x < width; x++) {
    paint.fillStyle = shade(x / (width - 1));
    paint.fillRect(x, height - 24, 1, 24);
  }
  const marks = ticks(range[0], range[1], 4).map((t) =>
    h('span', { style: { left: `${(100 * (t - range[0])) / (range[1] - range[0] || 1)}%` } }, number(t, 3)));
  const input = (i, label) => {
    const element = h('input', { type: 'number', step: 'any', value: Number(range[i].toPrecision(4)), onchange: () => {
      const next = [...range];
      next[i] = element.valueAsNumber;
      if (Number.isFinite(next[i]) && next[0] < next[1]) setRange(next);
      else element.value = range[i];
    } });
    element.setAttribute('aria-label', label);
    return element;
  };
  const same = range[0] === full[0] && range[1] === full[1];
  return [canvas, h('div', { className: 'marks' }, marks),
    h('div', { className: 'row range' }, input(0, 'lowest value'), h('span', { className: 'hint' }, 'to'), input(1, 'highest value'),
      h('button', { className: 'quiet', disabled: same, onclick: () => setRange(null) }, 'reset'))];
}

/** The legend of a field over the shown meshes. */
export function legend(element, fields, options) {
  const field = fields[0];
  if (!field) replace(element);
  else if (field.kind === 'labels') replace(element, classes(fields, options.table, options.changed));
  else if (field.kind === 'colours') replace(element, h('p', { className: 'hint' }, 'given colours'));
  else replace(element, bar(fields, options));
}
