// The data of the page: description, blocks of numbers, and what follows from them.

import { h } from './dom.js';

export const UNKNOWN = -1;

/** Bytes of a block: base64 of a raw deflate stream. */
export async function inflate(text) {
  let packed;
  if (Uint8Array.fromBase64) {
    packed = Uint8Array.fromBase64(text);
  } else {
    const letters = atob(text);
    packed = new Uint8Array(letters.length);
    for (let i = 0; i < letters.length; i++) packed[i] = letters.charCodeAt(i);
  }
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('deflate-raw'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** A column of integers: planes of bytes of differences, with the sign in the lowest bit. */
function column(bytes, [start, count, planes]) {
  const values = new Int32Array(count);
  for (let plane = 0; plane < planes; plane++) {
    const at = start + plane * count;
    const shift = 8 * plane;
    for (let i = 0; i < count; i++) values[i] |= bytes[at + i] << shift;
  }
  let last = 0;
  for (let i = 0; i < count; i++) {
    const folded = values[i];
    last = (last + ((folded >>> 1) ^ -(folded & 1))) | 0;
    values[i] = last;
  }
  return values;
}

/** A unit vector from octahedral coordinates. */
function fromOctahedral(a, b) {
  let x = a / 32767;
  let y = b / 32767;
  const z = 1 - Math.abs(x) - Math.abs(y);
  if (z < 0) [x, y] = [(1 - Math.abs(y)) * (x < 0 ? -1 : 1), (1 - Math.abs(x)) * (y < 0 ? -1 : 1)];
  const length = Math.hypot(x, y, z) || 1;
  return [x / length, y / length, z / length];
}

/** A field of a mesh. `values` has one number for each element; vectors have three in `vectors`. */
class Field {
  constructor(entry, bytes) {
    Object.assign(this, { name: entry.name, on: entry.on, kind: entry.kind, table: entry.table });
    const role = entry.role;
    this.role = role && typeof role === 'object' ? 'probability' : role;
    this.class = role && typeof role === 'object' ? role.probability : null;
    this.decode = () => {
      const columns = entry.columns.map((c) => column(bytes, c));
      if (entry.kind === 'numbers') {
        return Float32Array.from(columns[0], (v) => (v < 0 ? NaN : entry.low + v * entry.step));
      }
      if (entry.kind === 'labels') return columns[0];
      if (entry.kind === 'colours') {
        return Int32Array.from(columns[0], (r, i) => (r << 16) | (columns[1][i] << 8) | columns[2][i]);
      }
      const [x, y, z] = columns;
      this.vectors = new Float32Array(3 * x.length);
      const lengths = new Float32Array(x.length);
      for (let i = 0; i < x.length; i++) {
        const v = [x[i] * entry.step, y[i] * entry.step, z[i] * entry.step];
        this.vectors.set(v, 3 * i);
        lengths[i] = Math.hypot(...v);
      }
      return lengths;
    };
  }

  get values() {
    return (this.decoded ??= this.decode());
  }

  /** Lowest and highest number. */
  get range() {
    if (this.extent) return this.extent;
    let [low, high] = [Infinity, -Infinity];
    for (const value of this.values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    return (this.extent = low > high ? [0, 1] : [low, high]);
  }
}

/** A mesh with everything that the page shows of it. */
export class Model {
  constructor(index, entry, bytes, classes) {
    Object.assign(this, { index, name: entry.name, facts: entry.facts, registration: entry.registration });
    Object.assign(this, { vertexCount: entry.vertices, faceCount: entry.faces, triangleCount: entry.triangles });
    const [x, y, z] = entry.positions.map((c) => column(bytes, c));
    const [low, step] = [entry.low, entry.step];
    const count = entry.vertices;
    const top = [0, 0, 0];
    for (let i = 0; i < count; i++) {
      if (x[i] > top[0]) top[0] = x[i];
      if (y[i] > top[1]) top[1] = y[i];
      if (z[i] > top[2]) top[2] = z[i];
    }
    const middle = top.map((t) => t / 2);
    let radius = 0;
    for (let i = 0; i < count; i++) {
      const squared = (x[i] - middle[0]) ** 2 + (y[i] - middle[1]) ** 2 + (z[i] - middle[2]) ** 2;
      if (squared > radius) radius = squared;
    }
    // Positions in the scene: the mesh fills the unit ball.
    const scale = 1 / (Math.sqrt(radius) || 1);
    this.points = new Float32Array(3 * count);
    for (let i = 0; i < count; i++) {
      this.points[3 * i] = (x[i] - middle[0]) * scale;
      this.points[3 * i + 1] = (y[i] - middle[1]) * scale;
      this.points[3 * i + 2] = (z[i] - middle[2]) * scale;
    }
    this.position = (i) => [low[0] + step * x[i], low[1] + step * y[i], low[2] + step * z[i]];
    this.corners = column(bytes, entry.corners);
    this.edges = entry.edges && column(bytes, entry.edges);
    this.faceOf = entry.face && column(bytes, entry.face);
    this.frameColumns = entry.frames?.map((c) => column(bytes, c));
    this.fields = new Map();
    for (const field of entry.fields) this.fields.set(field.name, new Field(field, bytes));
    this.addErrors(classes);
  }

  /** Labels that compare the prediction with the truth. */
  addErrors(classes) {
    const [truth, prediction] = ['truth', 'prediction'].map((role) => this.byRole(role));
    if (truth?.kind !== 'labels' || prediction?.kind !== 'labels' || truth.on !== prediction.on) return;
    const field = { name: 'errors', on: truth.on, kind: 'labels', table: classes.errors, role: 'errors' };
    Object.defineProperty(field, 'values', {
      get() {
        return (this.decoded ??= truth.values.map((t, i) => (t === UNKNOWN ? UNKNOWN : Number(t !== prediction.values[i]))));
      },
    });
    this.fields.set(field.name, field);
  }

  byRole(role) {
    for (const field of this.fields.values()) if (field.role === role) return field;
    return undefined;
  }

  face(triangle) {
    return this.faceOf ? this.faceOf[triangle] : triangle;
  }

  point(vertex) {
    return [...this.points.subarray(3 * vertex, 3 * vertex + 3)];
  }

  /** Unit normals of the vertices: the mean of the face normals by area. */
  get normals() {
    if (this.meanNormals) return this.meanNormals;
    const { points: p, corners } = this;
    const sum = new Float32Array(p.length);
    for (let t = 0; t < corners.length; t += 3) {
      const [a, b, c] = [3 * corners[t], 3 * corners[t + 1], 3 * corners[t + 2]];
      const [ux, uy, uz] = [p[b] - p[a], p[b + 1] - p[a + 1], p[b + 2] - p[a + 2]];
      const [vx, vy, vz] = [p[c] - p[a], p[c + 1] - p[a + 1], p[c + 2] - p[a + 2]];
      const [nx, ny, nz] = [uy * vz - uz * vy, uz * vx - ux * vz, ux * vy - uy * vx];
      sum[a] += nx; sum[a + 1] += ny; sum[a + 2] += nz;
      sum[b] += nx; sum[b + 1] += ny; sum[b + 2] += nz;
      sum[c] += nx; sum[c + 1] += ny; sum[c + 2] += nz;
    }
    for (let i = 0; i < sum.length; i += 3) {
      const length = Math.hypot(sum[i], sum[i + 1], sum[i + 2]);
      if (length > 0) {
        sum[i] /= length; sum[i + 1] /= length; sum[i + 2] /= length;
      } else sum[i + 2] = 1;
    }
    return (this.meanNormals = sum);
  }

  /** Half the height along the upright axis, and the largest distance from it, in the scene. */
  extent(up) {
    const [axis, a, b] = up === 'z' ? [2, 0, 1] : [1, 0, 2];
    this.extents ??= {};
    if (this.extents[up]) return this.extents[up];
    let [height, squared] = [0, 0];
    const p = this.points;
    for (let i = 0; i < p.length; i += 3) {
      height = Math.max(height, Math.abs(p[i + axis]));
      squared = Math.max(squared, p[i + a] ** 2 + p[i + b] ** 2);
    }
    return (this.extents[up] = { height, radius: Math.sqrt(squared) });
  }

  /** The frame of a vertex: first and second axis, normal. Without stored frames, only the normal. */
  frame(vertex) {
    if (!this.frameColumns) return { normal: [...this.normals.subarray(3 * vertex, 3 * vertex + 3)] };
    const c = this.frameColumns.map((values) => values[vertex]);
    const normal = fromOctahedral(c[0], c[1]);
    const e1 = fromOctahedral(c[2], c[3]);
    const e2 = [
      normal[1] * e1[2] - normal[2] * e1[1],
      normal[2] * e1[0] - normal[0] * e1[2],
      normal[0] * e1[1] - normal[1] * e1[0],
    ];
    return { e1, e2, normal };
  }

  /** Vertices that share an edge with each vertex, as compressed rows. */
  get adjacency() {
    if (this.rows) return this.rows;
    const { corners, edges, vertexCount: count } = this;
    const offsets = new Uint32Array(count + 1);
    const each = (visit) => {
      for (let k = 0; k < corners.length; k++) {
        if (edges && !edges[k]) continue;
        const next = k % 3 === 2 ? k - 2 : k + 1;
        visit(corners[k], corners[next]);
        visit(corners[next], corners[k]);
      }
    };
    each((a) => offsets[a + 1]++);
    for (let i = 0; i < count; i++) offsets[i + 1] += offsets[i];
    const fill = offsets.slice();
    const list = new Uint32Array(offsets[count]);
    each((a, b) => { list[fill[a]++] = b; });
    return (this.rows = { offsets, list });
  }

  /** The side of the next triangle for each side, from corner `k` to the one after it, of triangle `t` at `3 t + k`; -1 at a border. */
  get twins() {
    if (this.otherSides) return this.otherSides;
    const { corners, vertexCount: count } = this;
    const twins = new Int32Array(corners.length).fill(-1);
    const open = new Map();
    for (let k = 0; k < corners.length; k++) {
      const [a, b] = [corners[k], corners[k % 3 === 2 ? k - 2 : k + 1]];
      const key = Math.min(a, b) * count + Math.max(a, b);
      const other = open.get(key);
      if (other === undefined) open.set(key, k);
      else if (twins[other] < 0) [twins[k], twins[other]] = [other, k];
    }
    return (this.otherSides = twins);
  }

  neighbours(vertex) {
    const { offsets, list } = this.adjacency;
    return [...new Set(list.subarray(offsets[vertex], offsets[vertex + 1]))].sort((a, b) => a - b);
  }

  /** The vertices of this mesh at a corresponding point. */
  counterparts(other, vertex) {
    if (other === this) return [];
    const [mine, theirs] = [this.byRole('point'), other.byRole('point')];
    if (mine && theirs) {
      const point = theirs.values[vertex];
      const found = [];
      if (point === UNKNOWN) return found;
      for (let i = 0; i < mine.values.length; i++) if (mine.values[i] === point) found.push(i);
      return found;
    }
    return this.registration === other.registration ? [vertex] : [];
  }
}

/** The description of the page and its meshes, which are read when they are first shown. */
export class Data {
  constructor(description, block) {
    this.description = description;
    this.block = block;
    this.models = [];
    this.classes = description.classes.map((table) => ({ ...table, hidden: new Set() }));
    this.classes.errors = this.classes.length;
    this.classes.push({ names: ['right', 'wrong'], colours: [[176, 186, 196], [214, 40, 57]], hidden: new Set() });
  }

  static ofPage() {
    const text = (id) => document.getElementById(id).textContent;
    return new Data(JSON.parse(text('description')), (i) => text(`block-${i}`));
  }

  /** Adds the meshes of another page, with their tables of classes. Returns the places of the meshes. */
  append({ description, blocks }) {
    const tables = description.classes.map((table) => {
      const known = this.classes.findIndex((other) => JSON.stringify(other.names) === JSON.stringify(table.names));
      return known < 0 ? this.classes.push({ ...table, hidden: new Set() }) - 1 : known;
    });
    const { block, count } = this;
    this.block = (i) => (i < count ? block(i) : blocks[i - count]);
    for (const mesh of description.meshes) {
      for (const field of mesh.fields) if (field.table !== null) field.table = tables[field.table];
      // No other mesh has this number: it is not known which vertices correspond.
      mesh.registration = -1 - this.description.meshes.push(mesh);
    }
    return description.meshes.map((_, i) => count + i);
  }

  get count() {
    return this.description.meshes.length;
  }

  async model(index) {
    if (!this.models[index]) {
      const bytes = await inflate(this.block(index));
      this.models[index] ??= new Model(index, this.description.meshes[index], bytes, this.classes);
    }
    return this.models[index];
  }
}

/** Saves a file from the page. */
export function save(name, blob) {
  const link = h('a', { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
