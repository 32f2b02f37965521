// The page: state, panels and shortcuts.

import { controls } from './controls.js';
import { Data, save } from './data.js';
import { grouped, h, remember, replace } from './dom.js';
import { inspect } from './inspector.js';
import { legend } from './legend.js';
import { live } from './live.js';
import { Predictor } from './predict.js';
import { ReportPage } from './report.js';
import { Stage } from './stage.js';
import { strokes } from './strokes.js';
import { mapTexture, paletteTexture } from './surface.js';
import { Transport } from './transport.js';

const MOST_SHOWN = 4;
const MOST_ARROWS = 4000;
const MOST_STROKES = 1500;
const MOST_EPOCHS = 200;
const WORST = 12;
const AXES = [[214, 69, 65], [52, 119, 219]];
const PICKED = [255, 176, 32];
const PARTNER = [46, 196, 182];
const BACK = { same: 0, tint: 1, hide: 2 };
const SHORTCUTS = [
  ['drag, one finger', 'turn'], ['right drag, two fingers', 'move'], ['scroll, pinch', 'zoom'], ['click', 'pick a vertex'],
  ['double click', 'show one mesh, or all'], ['arrow keys, + −', 'turn and zoom'], ['R', 'reset the view'], ['W', 'wireframe'], ['S', 'flat or smooth'],
  ['B', 'back faces'], ['O', 'borders of labels'], ['E', 'errors'], ['F', 'gauge frames'], ['V', 'vectors'], ['T', 'parallel transport'],
  ['[ ]', 'previous and next field'], ['L', 'link cameras'], ['U', 'up axis'], ['1 – 9', 'show or hide a mesh'], ['P', 'save a picture'],
  ['D', 'light or dark'], ['Esc', 'clear the pick'], ['?', 'this list'],
];

class App {
  constructor(data) {
    this.data = data;
    const { description } = data;
    this.state = {
      shown: new Set([...Array(Math.min(data.count, MOST_SHOWN)).keys()]),
      field: '', compare: '', wire: false, flat: false, borders: true, back: 'same', linked: true, up: description.up,
      vectors: '', strokes: false, frames: false, arrowSize: 0, tool: 'pick', tab: data.count || !description.report ? 'meshes' : 'training', theme: null,
    };
    this.ranges = new Map();
    this.maps = Object.fromEntries(Object.entries(description.maps).map(([name, shades]) => [name, mapTexture(shades)]));
    this.palettes = new Map();
    this.pick = null;
    this.transport = null;
    this.history = [];
    this.shownEpoch = -1;
    this.predictor = Predictor.ofPage();
    this.predictions = { status: '', problem: '' };
    this.build();
  }

  build() {
    const { description } = this.data;
    document.title = description.title;
    this.left = h('aside', { className: 'panel left', ariaLabel: 'Settings' });
    this.right = h('aside', { className: 'panel inspector', ariaLabel: 'Picked vertex', hidden: true });
    this.stageBox = h('div', { className: 'stage' });
    this.status = h('div', { className: 'status', role: 'status' });
    this.notes = h('div', { className: 'notes' });
    this.training = h('main', { className: 'report' });
    this.configuration = h('main', { className: 'report' });
    this.tabs = h('nav', { className: 'tabs', role: 'tablist' });
    this.progress = h('div', { className: 'progress', hidden: true });
    this.help = h('dialog', { className: 'help' }, h('h2', {}, 'Shortcuts'),
      h('dl', {}, SHORTCUTS.map(([key, what]) => [h('dt', {}, key), h('dd', {}, what)])),
      h('p', { className: 'hint' }, `Made by ${description.generator}. Positions are rounded to 1/256 of a short edge, values to 1/65,534 of their range.`),
      h('form', { method: 'dialog' }, h('button', {}, 'Close')));
    const tool = (label, title, onclick, id) => h('button', { className: 'tool', title, ariaLabel: title, onclick, id }, label);
    document.body.append(
      h('header', { className: 'top' },
        h('button', { className: 'tool menu', title: 'Settings', ariaLabel: 'Settings', onclick: () => document.body.classList.toggle('narrow-open') }, '☰'),
        h('span', { className: 'brand' }, 'gemcnn'), h('h1', { title: description.title }, description.title), this.progress, this.tabs,
        tool('⌂', 'Reset the view (R)', () => this.stage.home()), tool('◐', 'Light or dark (D)', () => this.toggleTheme()),
        tool('⤓', 'Save a picture (P)', () => this.screenshot()), tool('?', 'Shortcuts (?)', () => this.help.showModal())),
      h('div', { className: 'meshes-tab' }, this.left, h('main', { className: 'centre' }, this.stageBox, this.notes, this.status), this.right),
      this.training, this.configuration, this.help);
    this.stage = new Stage(this.stageBox);
    this.stage.onPick = (view, hit) => this.onPick(view, hit);
    this.stage.onFocus = (view) => this.focus(view.model.index);
    this.reportPage = new ReportPage(this.training, (i) => this.openMesh(i));
    const dark = window.matchMedia('(prefers-color-scheme: dark)');
    dark.addEventListener('change', () => this.theme());
    document.addEventListener('keydown', (event) => this.key(event));
    if (this.predictor) this.takeDrops();
    this.showNotes();
  }

  showNotes() {
    replace(this.notes, this.data.description.notes.map((note) => h('p', {}, note)));
  }

  async start() {
    await this.loadShown();
    this.decoded = performance.now();
    this.chooseField();
    this.showReport();
    this.showTab();
    this.rebuild();
  }

  /** Colours by the field that says most. */
  chooseField() {
    const fields = this.fieldList();
    const first = (fits) => fields.find(fits)?.name;
    this.state.field = first((f) => f.role === 'prediction') ?? first((f) => f.kind === 'labels') ?? first((f) => f.kind === 'colours') ??
      first((f) => f.kind === 'numbers') ?? '';
    // A prediction of points has the colours of the template.
    if (fields.find((f) => f.name === this.state.field)?.role === 'point') this.state.field = first((f) => f.kind === 'colours') ?? this.state.field;
  }

  showReport() {
    const { report } = this.data.description;
    const names = report ? [['meshes', 'Meshes'], ['training', 'Training'], ['configuration', 'Configuration']] : [];
    replace(this.tabs, names.map(([tab, label]) => {
      const button = h('button', { role: 'tab', onclick: () => { this.state.tab = tab; this.showTab(); this.showReport(); } }, label);
      button.setAttribute('aria-selected', String(this.state.tab === tab));
      return button;
    }));
    if (!report) return;
    this.reportPage.update(report);
    replace(this.configuration, h('section', { className: 'card' }, h('pre', { tabIndex: 0 }, report.configuration)));
    this.progress.hidden = !report.progress;
    if (report.progress) {
      const { share, text, ended } = report.progress;
      this.progress.classList.toggle('ended', ended);
      replace(this.progress, h('i', { style: { width: `${100 * share}%` } }), h('span', {}, text));
    }
  }

  showTab() {
    document.body.dataset.tab = this.state.tab;
    this.stage.resize();
    this.stage.dirty = true;
  }

  get models() {
    return [...this.state.shown].sort((a, b) => a - b).map((i) => this.data.models[i]).filter(Boolean);
  }

  async loadShown() {
    for (const i of this.state.shown) await this.data.model(i);
  }

  /** Fields of the shown meshes, each name once. */
  fieldList() {
    const found = new Map();
    for (const model of this.models) for (const field of model.fields.values()) if (!found.has(field.name)) found.set(field.name, field);
    return [...found.values()];
  }

  /** Changes the state. `layout` makes the views anew, `panel` the panel on the left. */
  set(changes, layout = false, panel = true) {
    Object.assign(this.state, changes);
    if (changes.up) this.stage.turnUp(changes.up);
    if ('linked' in changes) this.stage.link(changes.linked);
    if (changes.tool === 'pick') this.clearTransport();
    if (layout) this.rebuild();
    else this.refresh(panel);
  }

  /** Makes the views anew. */
  rebuild() {
    const { compare, field } = this.state;
    const shown = this.models.flatMap((model) => compare && compare !== field
      ? [[model, `${model.name}: ${field || 'surface'}`, field], [model, `${model.name}: ${compare}`, compare]] : [[model, model.name, null]]);
    this.stage.up = this.state.up;
    this.stage.show(shown);
    this.stage.views.forEach((view, i) => { view.field = shown[i][2]; });
    this.refresh();
  }

  range(name) {
    const fields = this.models.map((m) => m.fields.get(name)).filter((f) => f && (f.kind === 'numbers' || f.kind === 'vectors'));
    const full = fields.reduce(([a, b], f) => [Math.min(a, f.range[0]), Math.max(b, f.range[1])], [Infinity, -Infinity]);
    return { full, range: this.ranges.get(name) ?? full };
  }

  /** Values of both signs have a map with zero in the middle. */
  mapOf([low, high]) {
    return low < 0 && high > 0 && Math.min(-low, high) > 0.15 * Math.max(-low, high) ? 'diverging' : 'sequential';
  }

  shownRange(name) {
    const { full, range } = this.range(name);
    const map = this.mapOf(range);
    if (map === 'sequential' || this.ranges.has(name)) return { full, range, map };
    const most = Math.max(-range[0], range[1]);
    return { full: [-most, most], range: [-most, most], map };
  }

  refresh(panel = true) {
    const { state, data } = this;
    this.theme(false);
    this.palettes.forEach((texture) => texture.dispose());
    this.palettes.clear();
    for (const view of this.stage.views) {
      const field = view.model.fields.get(view.field ?? state.field);
      const table = field?.table === null || field?.table === undefined ? null : data.classes[field.table];
      if (table && !this.palettes.has(table)) this.palettes.set(table, paletteTexture(table));
      const numeric = field && (field.kind === 'numbers' || field.kind === 'vectors') ? this.shownRange(field.name) : {};
      view.surface.show(field, { table, palette: this.palettes.get(table), map: this.maps[numeric.map], range: numeric.range });
      const u = view.surface.uniforms;
      u.wire.value = state.wire;
      u.flat_.value = state.flat;
      u.borders.value = state.borders;
      u.back.value = BACK[state.back];
      this.drawArrows(view);
      this.drawMarkers(view);
    }
    if (panel) {
      const restore = remember(this.left);
      const box = controls(this.left, this);
      const name = state.field;
      const fields = this.models.map((m) => m.fields.get(name)).filter(Boolean);
      const numeric = fields[0] && (fields[0].kind === 'numbers' || fields[0].kind === 'vectors') ? this.shownRange(name) : {};
      legend(box, fields, {
        table: data.classes[fields[0]?.table], shades: data.description.maps[numeric.map], ...numeric, changed: () => this.refresh(),
        setRange: (range) => { if (range) this.ranges.set(name, range); else this.ranges.delete(name); this.refresh(); },
      });
      restore();
    }
    this.inspectPick();
    this.stage.dirty = true;
  }

  drawArrows(view) {
    const { state } = this;
    const { model } = view;
    const items = [];
    const every = Math.max(1, Math.ceil(model.vertexCount / MOST_ARROWS));
    const spacing = Math.sqrt(8 / Math.max(1, model.vertexCount / every));
    const size = 0.42 * spacing * Math.exp(state.arrowSize);
    const tubes = [];
    const vectors = state.vectors && model.fields.get(state.vectors);
    const ink = this.isDark ? [235, 238, 242] : [30, 34, 40];
    if (vectors && vectors.values.length && state.strokes) {
      const steps = Math.max(1, Math.ceil(model.triangleCount / MOST_STROKES));
      for (const line of strokes(model, vectors, steps, 4 * size)) {
        line.slice(1).forEach((b, i) => tubes.push([line[i], b.map((x, k) => x - line[i][k]), ink]));
      }
    } else if (vectors && vectors.values.length) {
      const longest = vectors.range[1] || 1;
      for (let v = 0; v < model.vertexCount; v += every) {
        const vector = [...vectors.vectors.subarray(3 * v, 3 * v + 3)].map((x) => (1.6 * size * x) / longest);
        items.push([model.point(v), vector, ink]);
      }
    }
    if (state.frames && model.frameColumns) {
      for (let v = 0; v < model.vertexCount; v += every) {
        const { e1, e2 } = model.frame(v);
        const point = model.point(v);
        items.push([point, e1.map((x) => size * x), AXES[0]], [point, e2.map((x) => size * x), AXES[1]]);
      }
    }
    const { transport } = this;
    let width = 0.075 * size;
    if (transport?.model === model) {
      const frames = transport.vectors;
      const length = Math.max(0.12, 0.9 * spacing);
      const place = (v) => {
        const { normal } = model.frame(v);
        return model.point(v).map((x, i) => x + 0.006 * normal[i]);
      };
      transport.path.forEach((v, i) => {
        const t = transport.path.length > 1 ? i / (transport.path.length - 1) : 0;
        items.push([place(v), frames[i].map((x) => length * x), [52 + 190 * t, 119 + 20 * t, 219 - 170 * t]]);
        if (i > 0) {
          const [a, b] = [place(transport.path[i - 1]), place(v)];
          tubes.push([a, b.map((x, k) => x - a[k]), PICKED]);
        }
      });
      width = Math.max(width, 0.0065);
    }
    view.arrows.set(items, width);
    view.tubes.set(tubes, 0.0035);
  }

  drawMarkers(view) {
    const marks = [];
    if (this.pick) {
      const { model, vertex } = this.pick;
      if (view.model === model) marks.push([view.model.point(vertex), PICKED]);
      else for (const v of view.model.counterparts(model, vertex)) marks.push([view.model.point(v), PARTNER]);
    }
    if (this.transport?.model === view.model) marks.push([view.model.point(this.transport.start), [52, 119, 219], 0.8], [view.model.point(this.transport.end), [242, 139, 49], 0.8]);
    view.markers.set(marks);
  }

  onPick(view, hit) {
    if (this.state.tool === 'transport') {
      if (!hit) return;
      if (this.transport?.model !== view.model) this.transport = new Transport(view.model, hit.vertex);
      else if (!this.transport.extend(hit.vertex)) this.say('There is no path to that vertex.');
      this.refresh();
      return;
    }
    this.choose(hit && { model: view.model, ...hit });
  }

  choose(pick) {
    this.pick = pick;
    for (const view of this.stage.views) this.drawMarkers(view);
    this.inspectPick();
    this.stage.dirty = true;
    this.say(!pick ? '' : `Vertex ${grouped(pick.vertex)} of ${pick.model.name}`);
  }

  inspectPick() {
    const { pick } = this;
    const counterparts = pick ? this.models.filter((m) => m !== pick.model).map((model) => ({ model, vertices: model.counterparts(pick.model, pick.vertex) })) : [];
    const known = counterparts.some(({ vertices }) => vertices.length) || pick?.model.byRole('point') ? counterparts : [];
    inspect(this.right, pick, {
      classes: this.data.classes, counterparts: known,
      goTo: (model, vertex) => this.goTo(model, vertex), clear: () => this.choose(null),
    });
  }

  goTo(model, vertex) {
    const view = this.stage.views.find((v) => v.model === model);
    if (!view) return;
    this.choose({ model, vertex });
    this.stage.lookAt(view, vertex);
  }

  extendTransport(vertex) {
    this.transport.extend(vertex);
    this.refresh();
  }

  turnTransport(degrees) {
    this.transport.degrees = degrees;
    this.refresh(false);
  }

  clearTransport() {
    this.transport = null;
    this.refresh();
  }

  async toggleMesh(i) {
    if (i >= this.data.count) return;
    if (!this.state.shown.delete(i)) this.state.shown.add(i);
    await this.loadShown();
    this.rebuild();
  }

  async showOnly(i) {
    this.state.shown = new Set([i]);
    await this.loadShown();
    this.rebuild();
  }

  focus(i) {
    if (this.state.shown.size > 1) {
      this.before = this.state.shown;
      this.showOnly(i);
    } else if (this.before) {
      this.state.shown = this.before;
      this.before = null;
      this.rebuild();
    }
  }

  /** Shows a mesh alone with its worst vertex. */
  async openMesh(i) {
    this.state.tab = 'meshes';
    this.showTab();
    this.showReport();
    await this.showOnly(i);
    const model = this.data.models[i];
    const worst = worstVertices(model, 1);
    if (worst.length) this.goTo(model, worst[0]);
  }

  /** Vertices of the shown meshes with the largest errors. */
  worst() {
    const found = this.models.flatMap((model) => worstVertices(model, WORST).map((vertex) => ({ model, vertex, error: model.byRole('error').values[vertex] })));
    return found.sort((a, b) => b.error - a.error).slice(0, WORST);
  }

  get isDark() {
    return this.state.theme ? this.state.theme === 'dark' : window.matchMedia('(prefers-color-scheme: dark)').matches;
  }

  toggleTheme() {
    this.state.theme = this.isDark ? 'light' : 'dark';
    this.refresh(false);
  }

  theme(redraw = true) {
    document.documentElement.dataset.theme = this.isDark ? 'dark' : 'light';
    for (const view of this.stage.views) {
      const u = view.surface.uniforms;
      u.plain.value.set(...(this.isDark ? [0.76, 0.775, 0.8] : [0.84, 0.845, 0.855]));
      u.backTint.value.set(0.86, 0.46, 0.32);
      u.ink.value.set(0.05, 0.06, 0.09);
      u.contrast.value = this.isDark ? 1.4 : 0.5;
    }
    if (redraw) this.refresh(false);
  }

  say(text) {
    this.status.textContent = text;
  }

  /** The picture on the screen as a PNG, with the names of the meshes. */
  screenshotCanvas() {
    const { stage } = this;
    stage.draw(false);
    const { canvas } = stage;
    const picture = h('canvas', { width: canvas.width, height: canvas.height });
    const paint = picture.getContext('2d');
    const style = getComputedStyle(document.documentElement);
    paint.fillStyle = style.getPropertyValue('--stage').trim();
    paint.fillRect(0, 0, picture.width, picture.height);
    paint.drawImage(canvas, 0, 0);
    paint.fillStyle = style.getPropertyValue('--ink').trim();
    paint.font = `${13 * stage.pixels}px system-ui, sans-serif`;
    for (const view of stage.views) {
      const box = stage.box(view);
      paint.fillText(view.label, (box.left + 14) * stage.pixels, (box.top + 24) * stage.pixels);
    }
    return picture;
  }

  screenshot() {
    this.screenshotCanvas().toBlob((blob) => {
      save(`${this.data.description.title.replace(/[^\w.-]+/g, '-') || 'view'}.png`, blob);
      this.say('The picture is saved.');
    });
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const { state } = this;
    const flip = (key) => this.set({ [key]: !state[key] });
    const fields = this.fieldList();
    const step = (by) => {
      const names = ['', ...fields.map((f) => f.name)];
      this.set({ field: names[(names.indexOf(state.field) + by + names.length) % names.length] });
    };
    const actions = {
      w: () => flip('wire'), s: () => flip('flat'), o: () => flip('borders'), l: () => flip('linked'), f: () => flip('frames'),
      b: () => this.set({ back: { same: 'tint', tint: 'hide', hide: 'same' }[state.back] }),
      u: () => this.set({ up: state.up === 'z' ? 'y' : 'z' }), r: () => this.stage.home(), p: () => this.screenshot(), d: () => this.toggleTheme(),
      t: () => this.set({ tool: state.tool === 'transport' ? 'pick' : 'transport' }),
      v: () => this.set({ vectors: state.vectors ? '' : fields.find((f) => f.kind === 'vectors')?.name ?? '' }),
      e: () => { if (fields.some((f) => f.name === 'errors')) this.set({ field: state.field === 'errors' ? fields.find((f) => f.role === 'prediction').name : 'errors' }); },
      '[': () => step(-1), ']': () => step(1), '?': () => this.help.showModal(), escape: () => this.choose(null),
      arrowleft: () => this.stage.turn(-0.12, 0), arrowright: () => this.stage.turn(0.12, 0), arrowup: () => this.stage.turn(0, 0.12),
      arrowdown: () => this.stage.turn(0, -0.12), '+': () => this.stage.turn(0, 0, 0.88), '=': () => this.stage.turn(0, 0, 0.88), '-': () => this.stage.turn(0, 0, 1.14),
    };
    const act = actions[event.key.toLowerCase()] ?? (/^[1-9]$/.test(event.key) ? () => this.toggleMesh(Number(event.key) - 1) : null);
    if (!act) return;
    event.preventDefault();
    act();
  }

  /** Keeps the predictions of an epoch, and shows them unless an earlier epoch is chosen. */
  async addEpoch(epoch, data) {
    const follows = this.shownEpoch === this.history.length - 1;
    this.history.push({ epoch, data });
    if (this.history.length > MOST_EPOCHS) {
      this.history.shift();
      this.shownEpoch = Math.max(0, this.shownEpoch - 1);
    }
    if (follows) await this.showEpoch(this.history.length - 1);
    else this.refresh();
  }

  async showEpoch(index) {
    this.shownEpoch = index;
    const { data } = this.history[index];
    data.description.report = this.data.description.report;
    await this.replaceData(data);
  }

  takeDrops() {
    const over = (event) => {
      event.preventDefault();
      document.body.classList.toggle('dropping', event.type === 'dragover');
    };
    for (const type of ['dragover', 'dragleave', 'drop']) document.addEventListener(type, over);
    document.addEventListener('drop', (event) => this.predict([...event.dataTransfer.files]));
  }

  /** Predicts for mesh files, one after the other, and shows the meshes. */
  async predict(files) {
    const { predictions } = this;
    for (const file of files) {
      Object.assign(predictions, { status: `computing ${file.name} …`, problem: '' });
      this.refresh();
      const start = performance.now();
      try {
        const places = this.data.append(await this.predictor.predict(file.name, new Uint8Array(await file.arrayBuffer())));
        const seconds = (performance.now() - start) / 1000;
        Object.assign(this.state, { shown: new Set(places), compare: '', tab: 'meshes' });
        await this.loadShown();
        predictions.status = `${file.name}: ${seconds.toFixed(2)} s`;
        this.chooseField();
        this.showReport();
        this.showTab();
        this.rebuild();
      } catch (error) {
        Object.assign(predictions, { status: '', problem: `${file.name}: ${error.message}` });
        this.refresh();
      }
    }
  }

  /** Takes new data from a live run; cameras, fields and picks stay. */
  async replaceData(data) {
    const hidden = this.data.classes.map((table) => table.hidden);
    this.data = data;
    data.classes.forEach((table, i) => { if (hidden[i]) table.hidden = hidden[i]; });
    if (!this.state.shown.size || [...this.state.shown].some((i) => i >= data.count)) {
      this.state.shown = new Set([...Array(Math.min(data.count, MOST_SHOWN)).keys()]);
    }
    await this.loadShown();
    if (this.pick) this.pick = { ...this.pick, model: data.models[this.pick.model.index] };
    if (!this.pick?.model) this.pick = null;
    this.transport = null;
    if (!this.state.field) await this.start();
    else this.rebuild();
    this.showNotes();
  }
}

/** Vertices with the largest error, worst first. */
function worstVertices(model, count) {
  const field = model.byRole('error');
  if (!field) return [];
  return [...field.values.keys()].filter((v) => field.values[v] > 0).sort((a, b) => field.values[b] - field.values[a]).slice(0, count);
}

async function main() {
  const app = new App(Data.ofPage());
  window.gemcnn = app;
  await app.start();
  requestAnimationFrame(() => requestAnimationFrame(() => { app.ready = performance.now(); document.body.dataset.ready = ''; }));
  if (app.data.description.live) live(app);
}

main().catch((error) => {
  document.body.append(h('p', { className: 'failure', role: 'alert' }, `The page cannot be shown: ${error.message}. It needs a browser with WebGL 2.`));
  throw error;
});
