// Elements from plain calls. Children that are not elements become text nodes, so text from files is never HTML.

export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (key === 'style') for (const [name, v] of Object.entries(value)) element.style.setProperty(name, v);
    else if (key in element && key !== 'list' && key !== 'form') element[key] = value;
    else element.setAttribute(key, value);
  }
  append(element, children);
  return element;
}

export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) element.setAttribute(key, value);
  }
  append(element, children);
  return element;
}

function append(element, children) {
  for (const child of children.flat(3)) {
    if (child !== undefined && child !== null && child !== false) element.append(child);
  }
}

export function replace(element, ...children) {
  element.replaceChildren();
  append(element, children);
}

/** Remembers focus and scroll positions within an element; the result restores them after its content is made anew. */
export function remember(element) {
  const focusable = () => [...element.querySelectorAll('button, input, select')];
  const lists = () => [element, ...element.querySelectorAll('ul')];
  const focus = focusable().indexOf(document.activeElement);
  const scrolls = lists().map((list) => list.scrollTop);
  return () => {
    focusable()[focus]?.focus({ preventScroll: true });
    lists().forEach((list, i) => { list.scrollTop = scrolls[i] ?? 0; });
  };
}

export const css = ([r, g, b]) => `rgb(${r} ${g} ${b})`;

/** A number with about `digits` significant digits, short. */
export function number(value, digits = 5) {
  if (!Number.isFinite(value)) return '–';
  if (Number.isInteger(value) && Math.abs(value) < 1e9) return grouped(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(digits - 1);
  return String(Number(value.toPrecision(digits)));
}

/** An integer with thousands separators. */
export const grouped = (value) => value.toLocaleString('en-GB');

export const percent = (share) => `${(100 * share).toFixed(1)} %`;
