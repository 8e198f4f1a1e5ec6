// What all views draw with. Texts go in as text only: names, commands and messages are other people's.
const SVG = "http://www.w3.org/2000/svg";

export const $ = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function shape(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export const gib = (mib) => (mib === null || mib === undefined ? "-" : mib < 1024 ? `${mib} MiB` : `${(mib / 1024).toFixed(1)} GiB`);

export function span(seconds) {
  if (seconds === null) return "-";
  const whole = Math.floor(seconds);
  const [d, h, m] = [Math.floor(whole / 86400), Math.floor((whole % 86400) / 3600), Math.floor((whole % 3600) / 60)];
  if (d) return `${d}d${String(h).padStart(2, "0")}h`;
  if (h) return `${h}h${String(m).padStart(2, "0")}m`;
  return m ? `${m}m${String(whole % 60).padStart(2, "0")}s` : `${whole}s`;
}

export function runs(indices) { // [0, 1, 2, 5] is 0-2,5
  const found = [];
  for (const index of indices) {
    const last = found.at(-1);
    if (last && last[1] === index - 1) last[1] = index;
    else found.push([index, index]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

// A bar to scale: parts of { mib, kind (its class), text }.
export function bar(parts, total) {
  const drawn = shape("svg", { class: "memory", viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": parts.map((part) => part.text).join(", ") });
  let x = 0;
  for (const part of parts) {
    const width = (1000 * part.mib) / (total || 1);
    const title = shape("title", {});
    title.textContent = part.text;
    drawn.append(shape("rect", { x, y: 0, width, height: 10, class: part.kind }, title));
    x += width;
  }
  return drawn;
}

export const legendEntry = (kind, text) =>
  make("li", {}, shape("svg", { viewBox: "0 0 1 1", "aria-hidden": "true" }, shape("rect", { width: 1, height: 1, class: kind })), text);

export const cell = (text, kind, title) => make("td", { ...(kind ? { class: kind } : {}), "data-title": title ?? "" }, text);

// Shows a text, or hides the element where there is none. What is read aloud is changed only where it differs.
export function show(element, text) {
  element.hidden = !text;
  if (element.textContent !== (text ?? "")) element.textContent = text ?? "";
}

// The address of a job's view, and what an address names: [job, host], the job null in another view.
export const jobAddress = (job, host) => `#/job/${encodeURIComponent(job)}${host ? `/at/${encodeURIComponent(host)}` : ""}`;

export function jobOf(hash) {
  const [, job, host] = /^#\/job\/([^/]+)(?:\/at\/([^/]+))?$/.exec(hash) ?? [];
  try {
    return job === undefined ? [null, ""] : [decodeURIComponent(job), decodeURIComponent(host ?? "")];
  } catch { // it was typed
    return [job, host ?? ""];
  }
}

// The login left a key behind the # of the address. It is kept for this server alone: the cookie goes to all ports.
// Another tab may log in again: it is read anew each time.
let ownKey = null;
if (location.hash.startsWith("#key=")) {
  ownKey = location.hash.slice("#key=".length);
  history.replaceState(null, "", location.pathname);
  try {
    localStorage.setItem("key", ownKey);
  } catch { // then it is this tab's alone
  }
}

function keyOfLogin() {
  try {
    return localStorage.getItem("key") ?? ownKey;
  } catch {
    return ownKey;
  }
}

// Has these elements as children. Those that stay are not moved: one that has the focus, or is read aloud, would lose it.
// One in the place of another, with the same data-key, gets its focus.
export function fill(parent, children) {
  const wanted = new Set(children);
  const lost = [...parent.children].filter((one) => !wanted.has(one));
  const focused = lost.find((one) => one.contains(document.activeElement));
  const tag = document.activeElement?.tagName;
  for (const one of lost) one.remove();
  children.forEach((child, index) => {
    if (parent.children[index] !== child) parent.insertBefore(child, parent.children[index] ?? null);
  });
  if (focused?.dataset.key) children.find((one) => one.dataset.key === focused.dataset.key)?.querySelector(tag)?.focus({ preventScroll: true });
}

// The same, but of texts: where only those differ the elements stay, and what a person has selected.
export function fillTexts(parent, children) {
  const before = [...parent.children];
  if (before.length !== children.length || children.some((one, index) => one.tagName !== before[index].tagName)) {
    parent.replaceChildren(...children);
    return;
  }
  children.forEach((one, index) => {
    if (one.textContent !== before[index].textContent) before[index].textContent = one.textContent;
  });
}

// The address of a path of this server, or through it of another host's.
export function at(path, host, given = {}) {
  const query = new URLSearchParams(Object.entries(given).flatMap(([name, value]) => (Array.isArray(value) ? value.map((one) => [name, one]) : [[name, value]])));
  if (host) query.set("host", host);
  const key = keyOfLogin();
  if (key) query.set("key", key);
  return query.size ? `${path}?${query}` : path;
}

export async function ask(path, options) {
  const answer = await fetch(path, options);
  const text = await answer.text();
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    found = { error: text.trim() };
  }
  if (!answer.ok) throw Object.assign(new Error([found.error, found.hint].filter(Boolean).join(". ")), { status: answer.status });
  return found;
}
