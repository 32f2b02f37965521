// Arrows, paths and markers.

import * as THREE from 'three';

const SIDES = 10;

/** A tube from z = 0 to 1 and a cone on top, with a flag that says which. */
function arrowShape(head) {
  const [places, normals, parts, index] = [[], [], [], []];
  const ring = (z, radius, slope, part) => {
    for (let i = 0; i <= SIDES; i++) {
      const angle = (2 * Math.PI * i) / SIDES;
      places.push(radius * Math.cos(angle), radius * Math.sin(angle), z);
      normals.push(Math.cos(angle), Math.sin(angle), slope);
      parts.push(part);
    }
  };
  const join = (a, b) => {
    for (let i = 0; i < SIDES; i++) index.push(a + i, a + i + 1, b + i, b + i, a + i + 1, b + i + 1);
  };
  const step = SIDES + 1;
  ring(0, 1, 0, 0);
  ring(1, 1, 0, 0);
  join(0, step);
  if (head) {
    ring(0, 2.6, 0.5, 1);
    ring(1, 0, 0.5, 1);
    join(2 * step, 3 * step);
  }
  const shape = new THREE.InstancedBufferGeometry();
  shape.setAttribute('position', new THREE.Float32BufferAttribute(places, 3));
  shape.setAttribute('normal', new THREE.Float32BufferAttribute(normals, 3));
  shape.setAttribute('part', new THREE.Float32BufferAttribute(parts, 1));
  shape.setIndex(index);
  return shape;
}

const ARROW_VERTEX = `
precision highp float;
uniform mat4 modelViewMatrix, projectionMatrix;
uniform mat3 normalMatrix;
uniform float width;
uniform bool head;
in vec3 position, normal, from, along, tint;
in float part;
out vec3 n, shade;
void main() {
  float size = length(along);
  vec3 z = size > 0.0 ? along / size : vec3(0.0, 0.0, 1.0);
  vec3 x = normalize(cross(z, abs(z.x) < 0.6 ? vec3(1.0, 0.0, 0.0) : vec3(0.0, 1.0, 0.0)));
  vec3 y = cross(z, x);
  float r = head ? min(width, 0.12 * size) : width;
  float cone = head ? min(7.0 * r, 0.45 * size) : 0.0;
  float height = part < 0.5 ? position.z * (size - cone) : size - cone + position.z * cone;
  vec3 p = from + r * (position.x * x + position.y * y) + height * z;
  n = normalMatrix * (normal.x * x + normal.y * y + normal.z * z);
  shade = tint;
  gl_Position = projectionMatrix * modelViewMatrix * vec4(p, 1.0);
}`;

const ARROW_FRAGMENT = `
precision highp float;
in vec3 n, shade;
out vec4 colour;
void main() {
  float light = 0.66 + 0.34 * max(dot(normalize(n), normalize(vec3(-0.4, 0.7, 0.7))), 0.0);
  colour = vec4(shade * light, 1.0);
}`;

/** Arrows or tubes; `items` are [from, vector, colour]. */
export class Arrows {
  constructor(head = true) {
    this.uniforms = { width: { value: 0.004 }, head: { value: head } };
    const material = new THREE.RawShaderMaterial({
      vertexShader: ARROW_VERTEX, fragmentShader: ARROW_FRAGMENT, glslVersion: THREE.GLSL3, uniforms: this.uniforms,
      side: THREE.DoubleSide,
    });
    this.object = new THREE.Mesh(arrowShape(head), material);
    this.object.frustumCulled = false;
    this.set([]);
  }

  set(items, width) {
    const shape = this.object.geometry;
    const put = (name, pick) => {
      const flat = new Float32Array(3 * items.length);
      items.forEach((item, i) => flat.set(pick(item), 3 * i));
      shape.setAttribute(name, new THREE.InstancedBufferAttribute(flat, 3));
    };
    put('from', (item) => item[0]);
    put('along', (item) => item[1]);
    put('tint', (item) => item[2].map((c) => c / 255));
    // The renderer remembers the largest count it has drawn unless the geometry is new to it.
    shape.dispose();
    shape._maxInstanceCount = undefined;
    shape.instanceCount = items.length;
    this.object.visible = items.length > 0;
    if (width) this.uniforms.width.value = width;
  }

  dispose() {
    this.object.geometry.dispose();
    this.object.material.dispose();
  }
}

const MARK_VERTEX = `
precision highp float;
uniform mat4 modelViewMatrix, projectionMatrix;
uniform float size;
in vec3 position, tint;
in float scale;
out vec3 shade;
void main() {
  shade = tint;
  gl_Position = projectionMatrix * modelViewMatrix * vec4(position, 1.0);
  gl_Position.z -= 0.02 * gl_Position.w;
  gl_PointSize = size * scale;
}`;

const MARK_FRAGMENT = `
precision highp float;
in vec3 shade;
out vec4 colour;
void main() {
  float r = 2.0 * length(gl_PointCoord - 0.5);
  float edge = fwidth(r);
  float disc = 1.0 - smoothstep(1.0 - edge, 1.0, r);
  if (disc < 0.02) discard;
  vec3 inner = mix(vec3(1.0), shade, 1.0 - smoothstep(0.62 - edge, 0.62, r));
  colour = vec4(inner, disc);
}`;

/** Round markers of fixed size on the screen; `items` are [point, colour, scale]. */
export class Markers {
  constructor(pixels) {
    const material = new THREE.RawShaderMaterial({
      vertexShader: MARK_VERTEX, fragmentShader: MARK_FRAGMENT, glslVersion: THREE.GLSL3, transparent: true,
      uniforms: { size: { value: 13 * pixels } },
    });
    this.object = new THREE.Points(new THREE.BufferGeometry(), material);
    this.object.frustumCulled = false;
    this.object.renderOrder = 2;
    this.set([]);
  }

  set(items) {
    const shape = this.object.geometry;
    const put = (name, width, values) => shape.setAttribute(name, new THREE.Float32BufferAttribute(values, width));
    put('position', 3, items.flatMap((item) => item[0]));
    put('tint', 3, items.flatMap((item) => item[1].map((c) => c / 255)));
    put('scale', 1, items.map((item) => item[2] ?? 1));
    this.object.visible = items.length > 0;
  }

  dispose() {
    this.object.geometry.dispose();
    this.object.material.dispose();
  }
}
