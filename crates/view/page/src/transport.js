// Parallel transport of a tangent vector along a path of edges.

const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const scaled = (s, a) => a.map((x) => s * x);
const sum = (a, b) => a.map((x, i) => x + b[i]);
const minus = (a, b) => a.map((x, i) => x - b[i]);
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];
const unit = (a) => scaled(1 / (Math.hypot(...a) || 1), a);

/** The vector at the target after the smallest rotation that maps the normal of the source to that of the target. */
function transported(vector, source, target) {
  const h = sum(source, target);
  const squared = dot(h, h);
  // Opposite normals have no smallest rotation; the vector stays.
  if (squared < 1e-12) return vector;
  return minus(vector, scaled((2 * dot(target, vector)) / squared, h));
}

/** The shortest path along edges between two vertices; null if there is none. */
function shortestPath(model, from, to) {
  const { offsets, list } = model.adjacency;
  const p = model.points;
  const length = (a, b) => Math.hypot(p[3 * a] - p[3 * b], p[3 * a + 1] - p[3 * b + 1], p[3 * a + 2] - p[3 * b + 2]);
  const best = new Map([[from, 0]]);
  const before = new Map();
  // A heap of [estimate, vertex]: the distance so far and the straight distance that is left.
  const heap = [[length(from, to), from]];
  const done = new Set();
  while (heap.length) {
    const [, vertex] = pop(heap);
    if (vertex === to) break;
    if (done.has(vertex)) continue;
    done.add(vertex);
    for (let e = offsets[vertex]; e < offsets[vertex + 1]; e++) {
      const next = list[e];
      const distance = best.get(vertex) + length(vertex, next);
      if (distance < (best.get(next) ?? Infinity)) {
        best.set(next, distance);
        before.set(next, vertex);
        push(heap, [distance + length(next, to), next]);
      }
    }
  }
  if (!best.has(to)) return null;
  const path = [to];
  while (path[0] !== from) path.unshift(before.get(path[0]));
  return path;
}

function push(heap, item) {
  let i = heap.push(item) - 1;
  while (i > 0) {
    const parent = (i - 1) >> 1;
    if (heap[parent][0] <= heap[i][0]) break;
    [heap[parent], heap[i]] = [heap[i], heap[parent]];
    i = parent;
  }
}

function pop(heap) {
  const top = heap[0];
  const last = heap.pop();
  if (heap.length) {
    heap[0] = last;
    for (let i = 0; ;) {
      let least = i;
      for (const child of [2 * i + 1, 2 * i + 2]) {
        if (child < heap.length && heap[child][0] < heap[least][0]) least = child;
      }
      if (least === i) break;
      [heap[least], heap[i]] = [heap[i], heap[least]];
      i = least;
    }
  }
  return top;
}

/** A vector carried along a path that clicks extend. */
export class Transport {
  constructor(model, vertex) {
    this.model = model;
    this.path = [vertex];
    this.degrees = 0;
  }

  get start() {
    return this.path[0];
  }

  get end() {
    return this.path.at(-1);
  }

  get isLoop() {
    return this.path.length > 1 && this.start === this.end;
  }

  /** Extends the path; false if the vertex cannot be reached. */
  extend(vertex) {
    const more = shortestPath(this.model, this.end, vertex);
    if (!more) return false;
    this.path.push(...more.slice(1));
    return true;
  }

  /** Axes of the tangent plane at the start: those of the frame, or any. */
  get axes() {
    const { e1, e2, normal } = this.model.frame(this.start);
    if (e1) return { e1, e2, normal };
    const axis = [0, 0, 0];
    axis[normal.map(Math.abs).indexOf(Math.min(...normal.map(Math.abs)))] = 1;
    const first = unit(minus(axis, scaled(dot(axis, normal), normal)));
    return { e1: first, e2: cross(normal, first), normal };
  }

  /** The vector at each vertex of the path. */
  get vectors() {
    const { e1, e2 } = this.axes;
    const angle = (this.degrees * Math.PI) / 180;
    const vectors = [sum(scaled(Math.cos(angle), e1), scaled(Math.sin(angle), e2))];
    for (let i = 1; i < this.path.length; i++) {
      const [source, target] = [this.path[i - 1], this.path[i]].map((v) => this.model.frame(v).normal);
      vectors.push(transported(vectors[i - 1], source, target));
    }
    return vectors;
  }

  /** The angle in degrees, from -180 to 180, by which a loop turns the vector. */
  get holonomy() {
    const { normal } = this.axes;
    const vectors = this.vectors;
    const [first, last] = [vectors[0], vectors.at(-1)];
    return (Math.atan2(dot(cross(first, last), normal), dot(first, last)) * 180) / Math.PI;
  }

  /** Length of the path in the units of the mesh. */
  get length() {
    let total = 0;
    for (let i = 1; i < this.path.length; i++) {
      total += Math.hypot(...minus(this.model.position(this.path[i]), this.model.position(this.path[i - 1])));
    }
    return total;
  }
}
