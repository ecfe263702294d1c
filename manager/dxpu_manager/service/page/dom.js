/** Elements without markup in strings. */

/** An element: properties that begin with `on` are listeners, others attributes. */
export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else set(made, name, value);
  }
  made.append(...children.filter(child => child !== null && child !== undefined));
  return made;
}

/** Set an attribute, or remove it if the value is null or false; nothing is done if it is so. */
export function set(element, name, value) {
  const text = value === null || value === undefined || value === false ? null
    : value === true ? "" : String(value);
  if (element.getAttribute(name) === text) return;
  if (text === null) element.removeAttribute(name);
  else element.setAttribute(name, text);
}

/** Set the text of an element; nothing is done if it is so. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const find = selector => document.querySelector(selector);

/** Have elements of a list in order, made or kept by key; `update` gets each with its item. */
export function keep(parent, items, keyOf, create, update) {
  const old = new Map([...parent.children].map(child => [child.dataset.key, child]));
  let before = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = old.get(key);
    old.delete(key);
    if (!child) {
      child = create(item);
      child.dataset.key = key;
    }
    update(child, item);
    if (child === before) before = before.nextElementSibling;
    else parent.insertBefore(child, before);
  }
  for (const child of old.values()) child.remove();
}

/** Let one of many elements be reached by Tab, and others from there by arrows, as they are on the
 *  screen. `all` gives the elements that can be reached now. */
export function rove(container, all) {
  const enter = element => {
    for (const other of container.querySelectorAll("[tabindex='0']")) {
      if (other !== element) other.tabIndex = -1;
    }
    element.tabIndex = 0;
  };
  container.addEventListener("focusin", event => {
    if (event.target !== container) enter(event.target);
  });
  container.addEventListener("keydown", event => {
    const here = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey || here === container) return;
    const there = target(event.key, here, all());
    if (!there) return;
    event.preventDefault();
    there.focus();
  });
  /** Call this when elements have come, gone, or been hidden. */
  return () => {
    const there = all();
    const now = container.querySelector("[tabindex='0']");
    if ((!now || !there.includes(now)) && there.length) enter(there[0]);
  };
}

function target(key, here, all) {
  const at = all.indexOf(here);
  if (key === "ArrowRight") return all[at + 1];
  if (key === "ArrowLeft") return all[at - 1];
  if (key === "Home") return all[0];
  if (key === "End") return all.at(-1);
  if (key !== "ArrowUp" && key !== "ArrowDown") return undefined;
  const from = here.getBoundingClientRect();
  const sign = key === "ArrowDown" ? 1 : -1;
  let best, least = Infinity;
  for (const one of all) {
    const to = one.getBoundingClientRect();
    const down = sign * (to.top + to.height / 2 - from.top - from.height / 2);
    if (down < from.height / 2) continue;
    const far = down * 4 + Math.abs(to.left + to.width / 2 - from.left - from.width / 2);
    if (far < least) [best, least] = [one, far];
  }
  return best;
}
