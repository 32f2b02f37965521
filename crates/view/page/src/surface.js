// The surface of a mesh, drawn from textures: every corner of every triangle fetches its vertex, so labels can change
// at sharp borders within a triangle, edges need no geometry of their own, and another field is one small texture.

import * as THREE from 'three';

const WIDTH = 4096;
/** Meshes with more triangles are drawn roughly while they turn. */
const MANY_TRIANGLES = 400000;
/** Cells along the longest side of a mesh, for the rough drawing. */
const CELLS = 128;
/** Cosine of the angle between the normals of a corner and its face above which there is a crease. */
const CREASE = 0.86;

const VERTEX = `
precision highp float;
precision highp int;
precision highp sampler2D;
precision highp usampler2D;
uniform mat4 modelViewMatrix, projectionMatrix;
uniform mat3 normalMatrix;
uniform sampler2D points, normals, values;
uniform usampler2D corners;
uniform int mode;
uniform bool onFace, flat_;
out vec3 place, normal, share, tint;
out float value;
flat out vec3 labels, edge;
flat out int triangle;
ivec2 at(int i) { return ivec2(i % ${WIDTH}, i / ${WIDTH}); }
float valueOf(int i) { return texelFetch(values, at(i), 0).r; }
void main() {
  triangle = gl_VertexID / 3;
  int k = gl_VertexID % 3;
  uvec4 row = texelFetch(corners, at(triangle), 0);
  edge = vec3(row.w & 1u, (row.w >> 1) & 1u, (row.w >> 2) & 1u);
  int face = int(row.w >> 3);
  int vertex = int(row[k]);
  vec4 p = modelViewMatrix * vec4(texelFetch(points, at(vertex), 0).xyz, 1.0);
  place = p.xyz;
  vec3 a = texelFetch(points, at(int(row.x)), 0).xyz;
  vec3 across = cross(texelFetch(points, at(int(row.y)), 0).xyz - a, texelFetch(points, at(int(row.z)), 0).xyz - a);
  float area = length(across);
  vec3 smooth_ = texelFetch(normals, at(vertex), 0).xyz;
  // Where the surface has a crease, the normal of the face.
  bool crease = area > 0.0 && (flat_ || dot(smooth_, across) < ${CREASE} * area);
  normal = normalMatrix * (crease ? across / area : smooth_);
  share = vec3(k == 0, k == 1, k == 2);
  value = 0.0;
  tint = vec3(0.0);
  labels = vec3(0.0);
  if (mode == 1) value = valueOf(onFace ? face : vertex);
  if (mode == 2) labels = onFace ? vec3(valueOf(face))
    : vec3(valueOf(int(row.x)), valueOf(int(row.y)), valueOf(int(row.z)));
  if (mode == 3) {
    int packed_ = int(valueOf(onFace ? face : vertex));
    tint = vec3(packed_ >> 16, (packed_ >> 8) & 255, packed_ & 255) / 255.0;
  }
  gl_Position = projectionMatrix * p;
}`;

// The same from shared vertices, for the rough drawing: without creases, edges and borders within triangles.
const SHARED_VERTEX = `
precision highp float;
precision highp int;
precision highp sampler2D;
uniform mat4 modelViewMatrix, projectionMatrix;
uniform mat3 normalMatrix;
uniform sampler2D points, normals, values;
uniform int mode;
out vec3 place, normal, share, tint;
out float value;
flat out vec3 labels, edge;
flat out int triangle;
void main() {
  ivec2 at = ivec2(gl_VertexID % ${WIDTH}, gl_VertexID / ${WIDTH});
  vec4 p = modelViewMatrix * vec4(texelFetch(points, at, 0).xyz, 1.0);
  place = p.xyz;
  normal = normalMatrix * texelFetch(normals, at, 0).xyz;
  value = mode == 0 ? 0.0 : texelFetch(values, at, 0).r;
  int packed_ = int(value);
  tint = mode == 3 ? vec3(packed_ >> 16, (packed_ >> 8) & 255, packed_ & 255) / 255.0 : vec3(0.0);
  labels = vec3(value);
  edge = vec3(0.0);
  share = vec3(1.0 / 3.0);
  triangle = 0;
  gl_Position = projectionMatrix * p;
}`;

const FRAGMENT = `
precision highp float;
precision highp int;
precision highp sampler2D;
uniform sampler2D palette, map;
uniform int mode, back, pick;
uniform bool wire, borders;
uniform vec2 range;
uniform vec3 plain, backTint, ink, up;
uniform float contrast;
in vec3 place, normal, share, tint;
in float value;
flat in vec3 labels, edge;
flat in int triangle;
out vec4 colour;
vec3 linear(vec3 c) { return mix(c / 12.92, pow((c + 0.055) / 1.055, vec3(2.4)), step(0.04045, c)); }
vec3 srgb(vec3 c) { c = clamp(c, 0.0, 1.0); return mix(12.92 * c, 1.055 * pow(c, vec3(1.0 / 2.4)) - 0.055, step(0.0031308, c)); }
vec4 entry(float label) { int i = int(label); return texelFetch(palette, ivec2(i % ${WIDTH}, i / ${WIDTH}), 0); }
void main() {
  vec3 b = share;
  vec3 w = max(fwidth(b), vec3(1e-6));
  vec3 albedo = plain;
  float line = 0.0;
  if (mode == 1) {
    float t = (value - range.x) / (range.y - range.x);
    albedo = value != value || value < -3e38 ? vec3(0.55) : texture(map, vec2(clamp(t, 0.002, 0.998), 0.5)).rgb;
  } else if (mode == 2) {
    bool isX = b.x >= b.y && b.x >= b.z;
    bool isY = !isX && b.y >= b.z;
    float first = isX ? labels.x : isY ? labels.y : labels.z;
    float most = max(b.x, max(b.y, b.z));
    // The nearest corner with another label, and the distance to the border with it in pixels.
    float other = first, gap = 2.0, width_ = 1.0;
    if (labels.x != first && most - b.x < gap) { gap = most - b.x; other = labels.x; }
    if (labels.y != first && most - b.y < gap) { gap = most - b.y; other = labels.y; }
    if (labels.z != first && most - b.z < gap) { gap = most - b.z; other = labels.z; }
    vec4 own = entry(first);
    vec4 next = entry(other);
    if (own.a < 0.5) discard;
    albedo = own.rgb;
    if (other != first && next.a > 0.5) {
      width_ = max(w.x, max(w.y, w.z)) * 1.5;
      float pixels = gap / width_;
      albedo = mix(next.rgb, own.rgb, clamp(0.5 + 0.5 * pixels * 2.0, 0.5, 1.0));
      if (borders) line = (1.0 - smoothstep(0.35, 1.1, pixels)) * (1.0 - smoothstep(0.25, 0.7, width_));
    }
  } else if (mode == 3) albedo = tint;
  bool front = gl_FrontFacing;
  if (!front && back == 2) discard;
  if (pick == 1) {
    int id = triangle + 1;
    colour = vec4(id & 255, (id >> 8) & 255, (id >> 16) & 255, (id >> 24) & 255) / 255.0;
    return;
  }
  vec3 eye = normalize(-place);
  vec3 n = normalize(normal);
  if (dot(n, eye) < 0.0) n = -n;
  vec3 base = linear(albedo);
  if (!front && back == 1) base = mix(base, linear(backTint), 0.8);
  if (line > 0.0) base = mix(base, base * 0.12, line);
  vec3 key = normalize(vec3(-0.45, 0.75, 0.85));
  vec3 fill = normalize(vec3(0.9, -0.1, 0.45));
  float wrap = max((dot(n, key) + 0.18) / 1.18, 0.0);
  float sky = 0.5 + 0.5 * dot(n, up);
  vec3 light = vec3(0.82) * wrap + vec3(0.13) * max(dot(n, fill), 0.0) + mix(vec3(0.185, 0.18, 0.178), vec3(0.325, 0.33, 0.336), sky);
  float facing = max(dot(n, eye), 0.0);
  light *= mix(0.72, 1.0, smoothstep(0.0, 0.55, facing));
  vec3 lit = base * light;
  vec3 halfway = normalize(key + eye);
  lit += 0.055 * pow(max(dot(n, halfway), 0.0), 42.0) + 0.05 * contrast * pow(1.0 - facing, 4.0);
  if (wire) {
    vec3 hidden = vec3(1e3) * (1.0 - edge.yzx);
    vec3 d = b / w + hidden;
    float near = min(d.x, min(d.y, d.z));
    float dense = smoothstep(0.08, 0.5, max(w.x, max(w.y, w.z)));
    lit = mix(lit, linear(ink), (1.0 - smoothstep(0.35, 1.15, near)) * mix(0.62, 0.16, dense));
  }
  colour = vec4(srgb(lit), 1.0);
}`;

function texture(Type, perTexel, format, type, internal, values, count) {
  const rows = Math.max(1, Math.ceil(count / WIDTH));
  const width = rows > 1 ? WIDTH : Math.max(1, count);
  const padded = new Type(perTexel * width * rows);
  padded.set(values);
  const made = new THREE.DataTexture(padded, width, rows, format, type);
  made.internalFormat = internal;
  made.unpackAlignment = 1;
  made.needsUpdate = true;
  return made;
}

const numbers = (values) =>
  texture(Float32Array, 1, THREE.RedFormat, THREE.FloatType, 'R32F', values, values.length);

function triples(values) {
  const count = values.length / 3;
  const wide = new Float32Array(4 * count);
  for (let i = 0; i < count; i++) {
    wide[4 * i] = values[3 * i];
    wide[4 * i + 1] = values[3 * i + 1];
    wide[4 * i + 2] = values[3 * i + 2];
  }
  return texture(Float32Array, 4, THREE.RGBAFormat, THREE.FloatType, 'RGBA32F', wide, count);
}

/** A colour map as a row of texels that are interpolated. */
export function mapTexture(shades) {
  const texels = Uint8Array.from(shades.flatMap((c) => [...c, 255]));
  const made = new THREE.DataTexture(texels, shades.length, 1, THREE.RGBAFormat, THREE.UnsignedByteType);
  made.magFilter = made.minFilter = THREE.LinearFilter;
  made.needsUpdate = true;
  return made;
}

/** Colours of classes and whether they are shown; the last entry is the unknown class. */
export function paletteTexture(table) {
  const count = table.names.length + 1;
  const texels = new Uint8Array(4 * count);
  for (let i = 0; i < count; i++) {
    texels.set(table.colours[i] ?? [128, 132, 138], 4 * i);
    texels[4 * i + 3] = table.hidden.has(i) ? 0 : 255;
  }
  return texture(Uint8Array, 4, THREE.RGBAFormat, THREE.UnsignedByteType, 'RGBA8', texels, count);
}

/** Textures of a mesh, shared by all its views. */
export class SurfaceTextures {
  constructor(model) {
    this.model = model;
    const { corners, edges, triangleCount } = model;
    const rows = new Uint32Array(4 * triangleCount);
    for (let t = 0; t < triangleCount; t++) {
      const flags = edges ? edges[3 * t] | (edges[3 * t + 1] << 1) | (edges[3 * t + 2] << 2) : 7;
      rows[4 * t] = corners[3 * t];
      rows[4 * t + 1] = corners[3 * t + 1];
      rows[4 * t + 2] = corners[3 * t + 2];
      rows[4 * t + 3] = flags | (model.face(t) << 3);
    }
    this.corners = texture(Uint32Array, 4, THREE.RGBAIntegerFormat, THREE.UnsignedIntType, 'RGBA32UI', rows, triangleCount);
    this.points = triples(model.points);
    this.normals = triples(model.normals);
    this.fields = new Map();
  }

  values(field, unknown) {
    if (!this.fields.has(field.name)) {
      const values = field.kind === 'labels' ? Float32Array.from(field.values, (c) => (c < 0 ? unknown : c)) : field.values;
      // A number that is not a number may not survive the texture.
      const whole = field.kind === 'numbers' ? Float32Array.from(values, (v) => (v === v ? v : -3.4e38)) : values;
      this.fields.set(field.name, numbers(whole));
    }
    return this.fields.get(field.name);
  }

  dispose() {
    for (const made of [this.corners, this.points, this.normals, ...this.fields.values()]) made.dispose();
  }
}

/** Corners of fewer triangles: all vertices in a cell of a lattice become the first of them. */
function roughCorners({ points, corners }) {
  const low = [Infinity, Infinity, Infinity];
  const high = [-Infinity, -Infinity, -Infinity];
  for (let i = 0; i < points.length; i++) {
    low[i % 3] = Math.min(low[i % 3], points[i]);
    high[i % 3] = Math.max(high[i % 3], points[i]);
  }
  const scale = (CELLS - 1) / Math.max(high[0] - low[0], high[1] - low[1], high[2] - low[2], 1e-30);
  const cell = (vertex, k) => Math.round((points[3 * vertex + k] - low[k]) * scale);
  const firsts = new Int32Array(CELLS ** 3).fill(-1);
  const first = new Uint32Array(points.length / 3);
  for (let v = 0; v < first.length; v++) {
    const place = (cell(v, 0) * CELLS + cell(v, 1)) * CELLS + cell(v, 2);
    if (firsts[place] < 0) firsts[place] = v;
    first[v] = firsts[place];
  }
  const kept = [];
  for (let i = 0; i < corners.length; i += 3) {
    const [a, b, c] = [first[corners[i]], first[corners[i + 1]], first[corners[i + 2]]];
    if (a !== b && b !== c && c !== a) kept.push(a, b, c);
  }
  return Uint32Array.from(kept);
}

const NOTHING = numbers(new Float32Array(1));
const MODES = { numbers: 1, vectors: 1, labels: 2, colours: 3 };

/** The surface in one view. */
export class Surface {
  constructor(textures) {
    this.textures = textures;
    const value = (v) => ({ value: v });
    this.uniforms = {
      points: value(textures.points), normals: value(textures.normals), corners: value(textures.corners),
      values: value(NOTHING), palette: value(NOTHING), map: value(NOTHING),
      mode: value(0), onFace: value(false), back: value(0), pick: value(0), flat_: value(false), wire: value(false),
      borders: value(true), range: value(new THREE.Vector2(0, 1)), plain: value(new THREE.Color()),
      backTint: value(new THREE.Color()), ink: value(new THREE.Color()), up: value(new THREE.Vector3(0, 1, 0)),
      contrast: value(0),
    };
    const geometry = new THREE.BufferGeometry();
    geometry.setDrawRange(0, 3 * textures.model.triangleCount);
    const material = new THREE.RawShaderMaterial({
      vertexShader: VERTEX, fragmentShader: FRAGMENT, glslVersion: THREE.GLSL3, uniforms: this.uniforms,
      side: THREE.DoubleSide,
    });
    this.full = new THREE.Mesh(geometry, material);
    this.full.frustumCulled = false;
    this.object = new THREE.Group();
    this.object.add(this.full);
    if (textures.model.triangleCount > MANY_TRIANGLES) this.addRough(textures.model);
  }

  addRough(model) {
    const geometry = new THREE.BufferGeometry();
    geometry.setIndex(new THREE.Uint32BufferAttribute(roughCorners(model), 1));
    const material = this.full.material.clone();
    material.uniforms = this.uniforms;
    material.vertexShader = SHARED_VERTEX;
    this.rough = new THREE.Mesh(geometry, material);
    this.rough.frustumCulled = false;
    this.rough.visible = false;
    this.object.add(this.rough);
  }

  /** Chooses between the rough and the full picture; true if it is the rough one. */
  hasten(moving) {
    const fast = Boolean(moving && this.rough && !this.uniforms.onFace.value);
    this.full.visible = !fast;
    if (this.rough) this.rough.visible = fast;
    return fast;
  }

  /** Colours by a field, or plainly. */
  show(field, { table, palette, map, range }) {
    const u = this.uniforms;
    u.mode.value = field ? MODES[field.kind] : 0;
    u.onFace.value = field?.on === 'face';
    if (!field) return;
    u.values.value = this.textures.values(field, table?.names.length);
    if (palette) u.palette.value = palette;
    if (map) u.map.value = map;
    if (range) u.range.value.set(range[0], range[1] > range[0] ? range[1] : range[0] + 1);
  }

  dispose() {
    for (const mesh of this.object.children) {
      mesh.geometry.dispose();
      mesh.material.dispose();
    }
  }
}
