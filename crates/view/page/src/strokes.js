// Strokes: short streamlines of a tangent vector field, traced over the triangles.

const MOST_CROSSINGS = 60;
const NEAR = 1e-6;

const sub = (a, b) => [a[0] - b[0], a[1] - b[1], a[2] - b[2]];
const dot = (a, b) => a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
const cross = (a, b) => [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]];

/** The field on a triangle: the mean of its corners, or the value of its face, within its plane, as a unit vector; null if there is none. */
function direction(field, corners, face, normal) {
  const at = (i) => field.vectors.subarray(3 * i, 3 * i + 3);
  const sum = [0, 0, 0];
  for (const i of field.on === 'face' ? [face] : corners) at(i).forEach((x, k) => { sum[k] += x; });
  const out = dot(sum, normal) / dot(normal, normal);
  const flat = sum.map((x, k) => x - out * normal[k]);
  const length = Math.hypot(...flat);
  return length > NEAR * Math.hypot(...sum) && length > 0 ? flat.map((x) => x / length) : null;
}

/** Points of the streamline from the centre of a triangle, forwards or backwards, up to a length. */
function trace(model, field, triangle, sign, length) {
  let weights = [1 / 3, 1 / 3, 1 / 3];
  const points = [];
  for (let left = length, crossings = 0; crossings < MOST_CROSSINGS; crossings++) {
    const corners = [...model.corners.subarray(3 * triangle, 3 * triangle + 3)];
    const [a, b, c] = corners.map((v) => model.point(v));
    const place = (w) => [0, 1, 2].map((k) => w[0] * a[k] + w[1] * b[k] + w[2] * c[k]);
    if (!points.length) points.push(place(weights));
    const normal = cross(sub(b, a), sub(c, a));
    const area = dot(normal, normal);
    const along = area > 0 && direction(field, corners, model.face(triangle), normal);
    if (!along) break;
    // How fast the weight of each corner changes along the way.
    const rates = [sub(c, b), sub(a, c), sub(b, a)].map((side) => (sign * dot(cross(normal, side), along)) / area);
    let [step, exit] = [left, -1];
    rates.forEach((rate, k) => { if (rate < 0 && weights[k] / -rate < step) [step, exit] = [weights[k] / -rate, k]; });
    weights = weights.map((w, k) => (k === exit ? 0 : Math.max(0, w + step * rates[k])));
    if (step > NEAR * length) points.push(place(weights));
    else if (crossings > 0) break; // The field of this triangle leads back.
    left -= step;
    if (exit < 0) break;
    const twin = model.twins[3 * triangle + ((exit + 1) % 3)];
    if (twin < 0) break;
    const weight = new Map(corners.map((v, k) => [v, weights[k]]));
    triangle = Math.floor(twin / 3);
    weights = [0, 1, 2].map((k) => weight.get(model.corners[3 * triangle + k]) ?? 0);
  }
  return points;
}

/** Streamlines from every `every`-th triangle, `length` long to both sides. */
export function strokes(model, field, every, length) {
  const lines = [];
  for (let t = 0; t < model.triangleCount; t += every) {
    const back = trace(model, field, t, -1, length).reverse();
    lines.push([...back, ...trace(model, field, t, 1, length).slice(1)]);
  }
  return lines;
}
