// The report of a training run: facts, curves, confusion and the worst meshes.

import { Chart } from './charts.js';
import { grouped, h, number, percent, replace } from './dom.js';

const MOST_WRITTEN = 24;

/** Table of counts with shaded cells; each row sums to one. */
function confusion({ names, counts }) {
  const many = names.length > MOST_WRITTEN;
  const totals = counts.map((row) => row.reduce((a, b) => a + b, 0));
  const cell = (value, i, j) => {
    const share = totals[i] ? value / totals[i] : 0;
    const title = `${names[i]} predicted as ${names[j]}: ${grouped(value)} (${percent(share)})`;
    const strength = Math.sqrt(share);
    return h('td', {
      title,
      className: `${i === j ? 'right' : 'wrong'}${strength > 0.62 ? ' strong' : ''}`,
      style: { '--share': `${(100 * strength).toFixed(1)}%` },
    }, many || value === 0 ? '' : share >= 0.0995 ? (100 * share).toFixed(0) : (100 * share).toFixed(1));
  };
  const head = h('tr', {}, h('th', { scope: 'col' }, ''), names.map((name) => h('th', { scope: 'col', title: name }, h('span', {}, name))),
    h('th', { scope: 'col', className: 'count' }, h('span', {}, 'count')));
  const rows = counts.map((row, i) => h('tr', {}, h('th', { scope: 'row', title: names[i] }, names[i]),
    row.map((value, j) => cell(value, i, j)), h('td', { className: 'count' }, grouped(totals[i]))));
  return h('section', { className: 'card confusion' },
    h('header', {}, h('h2', {}, 'Confusion'), h('span', { className: 'hint' }, 'rows: truth, columns: prediction, in per cent of the row')),
    h('div', { className: 'scroll' }, h('table', { className: many ? 'dense' : '' }, h('thead', {}, head), h('tbody', {}, rows))));
}

export class ReportPage {
  constructor(element, openMesh) {
    this.element = element;
    this.openMesh = openMesh;
    this.charts = new Map();
    this.facts = h('section', { className: 'facts' });
    this.curves = h('div', { className: 'curves' });
    this.tables = h('div', { className: 'tables' });
    replace(element, this.facts, this.curves, this.tables);
  }

  update(report) {
    replace(this.facts, report.facts.map(([name, value]) =>
      h('div', { className: 'fact' }, h('span', {}, name), h('strong', {}, value))));
    for (const curve of report.curves) {
      if (this.charts.has(curve.name)) this.charts.get(curve.name).update(curve);
      else this.charts.set(curve.name, new Chart(curve));
    }
    const elements = report.curves.map((curve) => this.charts.get(curve.name).element);
    if (elements.some((element, i) => this.curves.children[i] !== element)) replace(this.curves, elements);
    replace(this.tables, report.confusion && confusion(report.confusion), report.ranking.length > 0 && this.ranking(report));
  }

  ranking({ ranking, score }) {
    const row = (item) => h('tr', { className: item.mesh === null ? '' : 'open' },
      h('td', {}, item.mesh === null ? item.name
        : h('button', { className: 'link', onclick: () => this.openMesh(item.mesh) }, item.name)),
      h('td', { className: 'figure' }, number(item.score, 4)));
    return h('section', { className: 'card ranking' },
      h('header', {}, h('h2', {}, 'Meshes, worst first'), h('span', { className: 'hint' }, 'choose one to see it')),
      h('div', { className: 'scroll' }, h('table', {},
        h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'mesh'), h('th', { scope: 'col', className: 'figure' }, score))),
        h('tbody', {}, ranking.map(row)))));
  }
}
