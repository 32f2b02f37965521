// Views of meshes side by side on one canvas: cameras, drawing and picking.

import * as THREE from 'three';
import { OrbitControls } from 'three/addons/controls/OrbitControls.js';
import { h, replace } from './dom.js';
import { Arrows, Markers } from './glyphs.js';
import { Surface, SurfaceTextures } from './surface.js';

const FIELD_OF_VIEW = 30;
const HOME = { azimuth: 30, elevation: 20 };
/** A press that moves less than this, in pixels, is a click. */
const CLICK = 5;
/** Time without movement, in milliseconds, after which large meshes are drawn in full. */
const STILL = 160;

/** One mesh in one part of the canvas. */
class View {
  constructor(stage, model, label) {
    this.stage = stage;
    this.model = model;
    this.label = label;
    this.element = h('div', { className: 'view', tabIndex: 0, role: 'img' },
      h('div', { className: 'view-name' }, label));
    this.element.setAttribute('aria-label', `${label}: drag to turn, click to pick a vertex`);
    this.camera = new THREE.PerspectiveCamera(FIELD_OF_VIEW, 1, 0.01, 100);
    this.scene = new THREE.Scene();
    this.root = new THREE.Group();
    this.scene.add(this.root);
    this.surface = new Surface(stage.textures(model));
    this.arrows = new Arrows();
    this.tubes = new Arrows(false);
    this.markers = new Markers(stage.pixels);
    for (const part of [this.surface, this.arrows, this.tubes, this.markers]) this.root.add(part.object);
    this.controls = new OrbitControls(this.camera, this.element);
    this.controls.rotateSpeed = 0.9;
    this.controls.zoomToCursor = true;
    this.controls.minDistance = 0.02;
    this.controls.maxDistance = 40;
    this.controls.addEventListener('change', () => stage.moved(this));
    this.listen();
  }

  listen() {
    let press = null;
    this.element.addEventListener('pointerdown', (event) => {
      this.stage.active = this;
      press = event.isPrimary && event.button === 0 ? [event.clientX, event.clientY] : null;
    }, true);
    this.element.addEventListener('pointerup', (event) => {
      if (!press || Math.hypot(event.clientX - press[0], event.clientY - press[1]) > CLICK) return;
      press = null;
      this.stage.onPick?.(this, this.stage.pick(this, event.clientX, event.clientY), event);
    }, true);
    this.element.addEventListener('dblclick', () => this.stage.focus(this));
    this.element.addEventListener('focus', () => { this.stage.active = this; });
  }

  /** Distance from which the mesh fits the view while it turns about its upright axis. */
  get fit() {
    const tangent = Math.tan((FIELD_OF_VIEW * Math.PI) / 360);
    const { aspect } = this.camera;
    const ball = 1 / Math.sin(Math.atan(tangent * Math.min(1, aspect)));
    const { height, radius } = this.model.extent(this.stage.up);
    const cylinder = Math.max(height / tangent, radius / (tangent * aspect)) + radius;
    return 1.04 * Math.min(ball, cylinder);
  }

  /** The same for all views, which may be linked. */
  get distance() {
    return Math.max(...this.stage.views.map((view) => view.fit));
  }

  home() {
    const [a, e] = [HOME.azimuth, HOME.elevation].map((d) => (d * Math.PI) / 180);
    const away = new THREE.Vector3(Math.sin(a) * Math.cos(e), Math.sin(e), Math.cos(a) * Math.cos(e));
    this.controls.target.set(0, 0, 0);
    this.camera.position.copy(away.multiplyScalar(this.distance));
    this.controls.update();
  }

  /** Scene position of a point of the mesh. */
  world(point) {
    return new THREE.Vector3(...point).applyMatrix4(this.root.matrixWorld);
  }

  dispose() {
    this.controls.dispose();
    for (const part of [this.surface, this.arrows, this.tubes, this.markers]) part.dispose();
    this.element.remove();
  }
}

export class Stage {
  constructor(container) {
    this.container = container;
    this.canvas = h('canvas', { className: 'canvas' });
    this.canvas.setAttribute('aria-hidden', 'true');
    this.grid = h('div', { className: 'grid' });
    replace(container, this.canvas, this.grid);
    this.renderer = new THREE.WebGLRenderer({ canvas: this.canvas, antialias: true, alpha: true, powerPreference: 'high-performance' });
    this.pixels = Math.min(window.devicePixelRatio || 1, 2);
    this.renderer.setPixelRatio(this.pixels);
    this.renderer.autoClear = false;
    this.renderer.outputColorSpace = THREE.LinearSRGBColorSpace;
    this.renderer.setClearColor(0, 0);
    this.picked = new THREE.WebGLRenderTarget(1, 1, { depthBuffer: true });
    this.views = [];
    this.made = new Map();
    this.linked = true;
    this.active = null;
    this.movedAt = -Infinity;
    this.up = 'y';
    new ResizeObserver(() => {
      const size = `${container.clientWidth} ${container.clientHeight}`;
      if (size !== this.size) this.resize();
    }).observe(container);
    const loop = () => {
      if (this.dirty) this.draw();
      requestAnimationFrame(loop);
    };
    requestAnimationFrame(loop);
  }

  textures(model) {
    if (!this.made.has(model)) this.made.set(model, new SurfaceTextures(model));
    return this.made.get(model);
  }

  /** Shows models; `shown` has [model, label] for each view. Cameras stay where they are. */
  show(shown) {
    const old = this.views;
    const pose = old[0] && this.pose(this.active ?? old[0]);
    const poses = new Map(old.map((view) => [view.label, this.pose(view)]));
    for (const view of old) view.dispose();
    this.views = shown.map(([model, label]) => new View(this, model, label));
    replace(this.grid, this.views.map((view) => view.element));
    const used = new Set(shown.map(([model]) => model));
    for (const [model, textures] of this.made) {
      if (!used.has(model)) {
        textures.dispose();
        this.made.delete(model);
      }
    }
    this.active = this.views[0] ?? null;
    this.turnUp(this.up);
    this.resize();
    for (const view of this.views) {
      const own = (this.linked ? pose : poses.get(view.label)) ?? pose;
      const zoom = own && view.distance / own.fit;
      if (own) this.setPose(view, { position: own.target.clone().lerp(own.position, zoom), target: own.target });
      else view.home();
    }
    this.movedAt = -Infinity;
    this.dirty = true;
  }

  pose(view) {
    return { position: view.camera.position.clone(), target: view.controls.target.clone(), fit: view.distance };
  }

  setPose(view, { position, target }) {
    view.camera.position.copy(position);
    view.controls.target.copy(target);
    view.camera.lookAt(target);
    view.camera.updateMatrixWorld();
  }

  /** Copies the camera of a view to the others. */
  moved(view) {
    this.dirty = true;
    this.movedAt = performance.now();
    if (!this.linked || view !== this.active) return;
    for (const other of this.views) if (other !== view) this.setPose(other, this.pose(view));
  }

  link(linked) {
    this.linked = linked;
    if (this.active) this.moved(this.active);
  }

  home() {
    for (const view of this.views) view.home();
    this.dirty = true;
  }

  /** Rotates by angles in radians and zooms by a factor. */
  turn(right, down, zoom = 1) {
    const view = this.active;
    if (!view) return;
    const offset = view.camera.position.clone().sub(view.controls.target);
    const polar = new THREE.Spherical().setFromVector3(offset);
    polar.theta -= right;
    polar.phi = Math.min(Math.max(polar.phi - down, 0.01), Math.PI - 0.01);
    polar.radius *= zoom;
    view.camera.position.copy(view.controls.target).add(offset.setFromSpherical(polar));
    view.controls.update();
    this.moved(view);
  }

  /** Turns towards a vertex, so that it is in the middle. */
  lookAt(view, vertex) {
    const point = view.world(view.model.point(vertex));
    const normal = new THREE.Vector3(...view.model.frame(vertex).normal).transformDirection(view.root.matrixWorld);
    const distance = Math.min(view.camera.position.distanceTo(view.controls.target), 0.45 * view.distance);
    view.controls.target.copy(point);
    view.camera.position.copy(point).addScaledVector(normal, distance);
    view.controls.update();
    this.active = view;
    this.moved(view);
  }

  focus(view) {
    this.onFocus?.(view);
  }

  turnUp(up) {
    this.up = up;
    for (const view of this.views) {
      view.root.rotation.x = up === 'z' ? -Math.PI / 2 : 0;
      view.root.updateMatrixWorld(true);
    }
    this.dirty = true;
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.container;
    if (!width || !height || !this.views.length) return;
    this.size = `${width} ${height}`;
    const count = this.views.length;
    let best = null;
    for (let columns = 1; columns <= count; columns++) {
      const rows = Math.ceil(count / columns);
      const side = Math.min(width / columns / 0.82, height / rows);
      if (!best || side > best.side) best = { side, columns, rows };
    }
    this.grid.style.gridTemplateColumns = `repeat(${best.columns}, 1fr)`;
    this.grid.style.gridTemplateRows = `repeat(${best.rows}, 1fr)`;
    this.renderer.setSize(width, height, false);
    const before = this.views[0].distance;
    for (const view of this.views) {
      const box = this.box(view);
      view.camera.aspect = box.width / Math.max(box.height, 1);
      view.camera.updateProjectionMatrix();
    }
    // Keeps the meshes in view when the shape of the views changes.
    const factor = this.views[0].distance / before;
    for (const view of this.views) {
      const offset = view.camera.position.clone().sub(view.controls.target);
      view.camera.position.copy(view.controls.target).add(offset.multiplyScalar(factor));
    }
    this.dirty = true;
  }

  /** Place of a view on the canvas, from its top left. */
  box(view) {
    const [outer, inner] = [this.canvas.getBoundingClientRect(), view.element.getBoundingClientRect()];
    return { left: inner.left - outer.left, top: inner.top - outer.top, width: inner.width, height: inner.height };
  }

  /** Draws all views. A large mesh that moves is drawn faster, and in full when it is still. */
  draw(moving = performance.now() - this.movedAt < STILL) {
    this.dirty = false;
    const { renderer } = this;
    let fast = false;
    const height = this.canvas.clientHeight;
    renderer.setRenderTarget(null);
    renderer.setScissorTest(false);
    renderer.clear();
    renderer.setScissorTest(true);
    for (const view of this.views) {
      const box = this.box(view);
      const bottom = height - box.top - box.height;
      renderer.setViewport(box.left, bottom, box.width, box.height);
      renderer.setScissor(box.left, bottom, box.width, box.height);
      view.camera.updateMatrixWorld();
      view.surface.uniforms.up.value.set(0, 1, 0).transformDirection(view.camera.matrixWorldInverse);
      this.clip(view);
      fast = view.surface.hasten(moving) || fast;
      renderer.render(view.scene, view.camera);
    }
    clearTimeout(this.later);
    if (fast) this.later = setTimeout(() => { this.dirty = true; }, STILL);
  }

  clip(view) {
    const distance = view.camera.position.length();
    view.camera.near = Math.max(distance - 1.3, 0.002 * distance, 0.002);
    view.camera.far = distance + 1.3;
    view.camera.updateProjectionMatrix();
  }

  /** The triangle at a place of the window, with the vertex nearest to it; null if there is no surface. */
  pick(view, clientX, clientY) {
    const rect = view.element.getBoundingClientRect();
    const [x, y] = [clientX - rect.left, clientY - rect.top];
    const { renderer } = this;
    this.clip(view);
    view.camera.updateMatrixWorld();
    view.camera.setViewOffset(rect.width, rect.height, x - 0.5, y - 0.5, 1, 1);
    const others = [view.arrows, view.tubes, view.markers].map((part) => part.object);
    const visible = others.map((object) => object.visible);
    for (const object of others) object.visible = false;
    const uniforms = view.surface.uniforms;
    view.surface.hasten(false);
    uniforms.pick.value = 1;
    renderer.setRenderTarget(this.picked);
    renderer.setScissorTest(false);
    renderer.clear();
    renderer.render(view.scene, view.camera);
    const texel = new Uint8Array(4);
    renderer.readRenderTargetPixels(this.picked, 0, 0, 1, 1, texel);
    renderer.setRenderTarget(null);
    uniforms.pick.value = 0;
    others.forEach((object, i) => { object.visible = visible[i]; });
    view.camera.clearViewOffset();
    const triangle = (texel[0] | (texel[1] << 8) | (texel[2] << 16) | (texel[3] << 24)) - 1;
    if (triangle < 0) return null;
    // The corner that is nearest on the screen to the place of the click.
    const corners = [...view.model.corners.subarray(3 * triangle, 3 * triangle + 3)];
    const away = (vertex) => {
      const [px, py] = this.project(view, vertex);
      return Math.hypot(px - clientX, py - clientY);
    };
    const vertex = corners.reduce((best, v) => (away(v) < away(best) ? v : best));
    return { triangle, face: view.model.face(triangle), vertex, corners };
  }

  /** Place of a vertex in the window. */
  project(view, vertex) {
    const rect = view.element.getBoundingClientRect();
    view.camera.updateMatrixWorld();
    const p = view.world(view.model.point(vertex)).project(view.camera);
    return [rect.left + (0.5 + 0.5 * p.x) * rect.width, rect.top + (0.5 - 0.5 * p.y) * rect.height];
  }
}
