// Line charts that can be zoomed: drag to select a range, scroll to zoom, double click to see all.

import { h, number, replace, svg } from './dom.js';

const MARGIN = { left: 52, right: 14, top: 12, bottom: 34 };
const HEIGHT = 260;

/** Round numbers that divide a range. */
export function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) ?? rough;
  const found = [];
  for (let t = Math.ceil(low / step - 1e-9) * step; t <= high + 1e-9 * step; t += step) found.push(Math.abs(t) < step * 1e-9 ? 0 : t);
  return found;
}

function logTicks(low, high) {
  const [from, to] = [Math.floor(low), Math.ceil(high)];
  const wide = high - low > 2.5;
  const found = [];
  for (let p = from; p <= to; p++) {
    for (const m of wide ? [1] : [1, 2, 5]) {
      const t = Math.log10(m) + p;
      if (t >= low - 1e-9 && t <= high + 1e-9) found.push(t);
    }
  }
  return found;
}

export class Chart {
  constructor(curve) {
    this.curve = curve;
    this.log = curve.log;
    this.zoom = null;
    this.body = h('div', { className: 'chart-body' });
    const log = h('input', { type: 'checkbox', checked: this.log, onchange: () => { this.log = log.checked; this.draw(); } });
    this.reading = h('span', { className: 'reading', ariaLive: 'off' });
    this.element = h('section', { className: 'card chart' },
      h('header', {}, h('h2', {}, curve.name), this.reading,
        h('label', { className: 'check' }, log, 'log'),
        h('button', { className: 'quiet', title: 'See all epochs', onclick: () => this.reset() }, 'reset')),
      this.body, this.keys());
    new ResizeObserver(() => this.draw()).observe(this.body);
  }

  keys() {
    return h('ul', { className: 'keys' }, this.curve.series.map((series, i) =>
      h('li', {}, h('i', { className: `swatch series-${i}` }), series.name)));
  }

  update(curve) {
    this.curve = curve;
    this.draw();
  }

  reset() {
    this.zoom = null;
    this.draw();
  }

  value(y) {
    return this.log ? Math.log10(y) : y;
  }

  draw() {
    const width = this.body.clientWidth;
    if (!width) return;
    const points = this.curve.series.map((s) => s.points.filter(([, y]) => Number.isFinite(y) && (!this.log || y > 0)));
    const all = points.flat();
    if (!all.length) {
      replace(this.body, h('p', { className: 'empty' }, 'no epoch is complete yet'));
      return;
    }
    const xs = all.map(([x]) => x);
    const full = [Math.min(...xs), Math.max(...xs)];
    if (full[0] === full[1]) full[1] = full[0] + 1;
    const [x0, x1] = this.zoom ?? full;
    const inside = all.filter(([x]) => x >= x0 && x <= x1);
    const ys = (inside.length ? inside : all).map(([, y]) => this.value(y));
    let [y0, y1] = [Math.min(...ys), Math.max(...ys)];
    const pad = (y1 - y0 || Math.abs(y0) || 1) * 0.06;
    [y0, y1] = [y0 - pad, y1 + pad];
    const px = (x) => MARGIN.left + ((x - x0) / (x1 - x0)) * (width - MARGIN.left - MARGIN.right);
    const py = (y) => HEIGHT - MARGIN.bottom - ((y - y0) / (y1 - y0)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
    let yTicks = this.log ? logTicks(y0, y1) : ticks(y0, y1, 5);
    if (this.log && yTicks.length < 3) yTicks = ticks(10 ** y0, 10 ** y1, 5).filter((t) => t > 0).map(Math.log10);
    const clip = `clip-${this.curve.name.replace(/\W/g, '')}`;
    const grid = yTicks.map((t) => [
      svg('line', { class: 'gridline', x1: MARGIN.left, x2: width - MARGIN.right, y1: py(t), y2: py(t) }),
      svg('text', { class: 'tick', x: MARGIN.left - 8, y: py(t) + 4, 'text-anchor': 'end' }, number(this.log ? 10 ** t : t, 3)),
    ]);
    const bottom = ticks(x0, x1, Math.min(10, width / 80)).filter((t) => Number.isInteger(t) || x1 - x0 < 3).map((t) =>
      svg('text', { class: 'tick', x: px(t), y: HEIGHT - MARGIN.bottom + 18, 'text-anchor': 'middle' }, number(t, 4)));
    const lines = points.map((series, i) => {
      const d = series.map(([x, y], k) => `${k ? 'L' : 'M'}${px(x).toFixed(1)} ${py(this.value(y)).toFixed(1)}`).join('');
      const dots = series.length <= 60 ? series.map(([x, y]) => svg('circle', { class: `dot series-${i}`, cx: px(x), cy: py(this.value(y)), r: 2.4 })) : [];
      return svg('g', {}, svg('path', { class: `line series-${i}`, d }), dots);
    });
    const cursor = svg('line', { class: 'cursor', y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom, visibility: 'hidden' });
    const band = svg('rect', { class: 'band', y: MARGIN.top, height: HEIGHT - MARGIN.top - MARGIN.bottom, width: 0 });
    const picture = svg('svg', { width, height: HEIGHT, role: 'img', 'aria-label': `${this.curve.name} over ${this.curve.over}` },
      svg('clipPath', { id: clip }, svg('rect', { x: MARGIN.left - 4, y: 0, width: width - MARGIN.left - MARGIN.right + 8, height: HEIGHT })),
      grid, bottom,
      svg('text', { class: 'axis', x: width - MARGIN.right, y: HEIGHT - 3, 'text-anchor': 'end' }, this.curve.over),
      svg('g', { 'clip-path': `url(#${clip})` }, band, cursor, lines));
    this.listen(picture, { full, x0, x1, px, cursor, band, points, width });
    replace(this.body, picture);
  }

  listen(picture, { full, x0, x1, cursor, band, points, width, px }) {
    const at = (event) => {
      const inner = width - MARGIN.left - MARGIN.right;
      const share = (event.clientX - picture.getBoundingClientRect().left - MARGIN.left) / inner;
      return x0 + Math.min(Math.max(share, 0), 1) * (x1 - x0);
    };
    let from = null;
    picture.addEventListener('pointerdown', (event) => { from = at(event); picture.setPointerCapture(event.pointerId); });
    picture.addEventListener('pointermove', (event) => {
      const x = at(event);
      if (from !== null) {
        const [a, b] = [px(Math.min(from, x)), px(Math.max(from, x))];
        band.setAttribute('x', a);
        band.setAttribute('width', b - a);
      }
      const near = points.map((series) => series.reduce((best, p) => (!best || Math.abs(p[0] - x) < Math.abs(best[0] - x) ? p : best), null));
      const first = near.find(Boolean);
      if (!first) return;
      cursor.setAttribute('visibility', 'visible');
      cursor.setAttribute('x1', px(first[0]));
      cursor.setAttribute('x2', px(first[0]));
      this.reading.textContent = `${this.curve.over} ${number(first[0])}: ` +
        near.map((p, i) => p && `${this.curve.series[i].name} ${number(p[1], 4)}`).filter(Boolean).join(', ');
    });
    picture.addEventListener('pointerup', (event) => {
      const to = at(event);
      const [a, b] = [Math.min(from, to), Math.max(from, to)];
      const moved = from !== null && px(b) - px(a) > 8;
      from = null;
      if (moved) this.zoom = [a, b];
      if (moved) this.draw();
    });
    picture.addEventListener('pointerleave', () => {
      cursor.setAttribute('visibility', 'hidden');
      this.reading.textContent = '';
    });
    picture.addEventListener('dblclick', () => this.reset());
    picture.addEventListener('wheel', (event) => {
      event.preventDefault();
      const x = at(event);
      const factor = Math.exp(0.0015 * event.deltaY);
      const range = [Math.max(full[0], x - (x - x0) * factor), Math.min(full[1], x + (x1 - x) * factor)];
      if (range[1] - range[0] < 1e-6 * (full[1] - full[0])) return;
      this.zoom = range[0] <= full[0] && range[1] >= full[1] ? null : range;
      this.draw();
    }, { passive: false });
  }
}
