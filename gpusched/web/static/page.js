// Draws each moment that the server sends. Texts go in as text only: names, commands and messages are other people's.
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const ENDED = new Set(["succeeded", "failed", "cancelled", "lost"]);
const KINDS = { foreign: "processes of no job", other: "used, not known by whom", others: "jobs of others", reserved: "kept by the driver", free: "free" };
const COLOURS = 6;
let latest = null;
let heard = 0;
const opened = new Set();

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

function shape(tag, attributes, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

const gib = (mib) => (mib === null ? "-" : mib < 1024 ? `${mib} MiB` : `${(mib / 1024).toFixed(1)} GiB`);

function span(seconds) {
  if (seconds === null) return "-";
  const [d, h, m] = [Math.floor(seconds / 86400), Math.floor((seconds % 86400) / 3600), Math.floor((seconds % 3600) / 60)];
  if (d) return `${d}d${String(h).padStart(2, "0")}h`;
  if (h) return `${h}h${String(m).padStart(2, "0")}m`;
  return m ? `${m}m${String(seconds % 60).padStart(2, "0")}s` : `${seconds}s`;
}

function colourOf(job, moment) { // by its number, so that a job keeps its colour while others come and go
  const number = Number(/(\d+)\D*$/.exec(job)?.[1] ?? moment.jobs.findIndex((one) => one.id === job));
  return `j${Math.abs(number) % COLOURS}`;
}

function textOf(part) {
  if (part.job === null) return `${KINDS[part.kind] ?? part.kind}: ${gib(part.mib)}`;
  return part.kind === "used" ? `${part.job} uses ${gib(part.mib)}` : `${part.job} has ${gib(part.mib)} more`;
}

function bar(device, moment) {
  const total = device.parts.reduce((sum, part) => sum + part.mib, 0) || 1;
  const drawn = shape("svg", { class: "memory", viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": device.parts.map(textOf).join(", ") });
  let x = 0;
  for (const part of device.parts) {
    const width = (1000 * part.mib) / total;
    const kind = part.job === null ? part.kind : `${colourOf(part.job, moment)} ${part.kind}`;
    const title = shape("title", {});
    title.textContent = textOf(part);
    drawn.append(shape("rect", { x, y: 0, width, height: 10, class: kind }, title));
    x += width;
  }
  return drawn;
}

function gpu(device, moment) {
  const numbers = [
    device.busy === null ? null : `${device.busy} %`,
    device.total === null ? null : `${gib(device.used)} of ${gib(device.total)}`,
    device.celsius === null ? null : `${device.celsius} °C`,
    device.watts === null ? null : device.most_watts === null ? `${device.watts} W` : `${device.watts} of ${device.most_watts} W`,
  ].filter((text) => text !== null);
  const note = device.problem ?? device.slowed;
  return make("article", { class: device.health === "ok" ? "gpu" : "gpu bad", "aria-label": `GPU ${device.label}` },
    make("div", { class: "top" },
      make("span", { class: "name", title: device.uuid }, `GPU ${device.label}  ${device.name}`),
      make("span", { class: "numbers" }, ...numbers.map((text) => make("span", {}, text)))),
    device.total === null ? null : bar(device, moment),
    note ? make("p", { class: "note" }, note) : null);
}

function legend(moment) {
  const jobs = [...new Set(moment.devices.flatMap((device) => device.parts.map((part) => part.job)))].filter((job) => job !== null);
  const kinds = Object.keys(KINDS).filter((kind) => moment.devices.some((device) => device.parts.some((part) => part.kind === kind)));
  const entry = (kind, text) => make("li", {}, shape("svg", { viewBox: "0 0 1 1", "aria-hidden": "true" }, shape("rect", { width: 1, height: 1, class: kind })), text);
  return [...jobs.map((job) => entry(colourOf(job, moment), job)), ...(jobs.length ? [entry("j0 leased", "paler: given, not used")] : []), ...kinds.map((kind) => entry(kind, KINDS[kind]))];
}

function time(job) {
  const now = Math.floor(Date.now() / 1000);
  if (job.state === "queued") return `waits ${span(Math.max(0, now - job.created))}`;
  if (job.started === null || (ENDED.has(job.state) && job.ended === null)) return "-";
  return span(Math.max(0, (ENDED.has(job.state) ? job.ended : now) - job.started));
}

function runs(indices) { // [0, 1, 2, 5] is 0-2,5
  const found = [];
  for (const index of indices) {
    const last = found.at(-1);
    if (last && last[1] === index - 1) last[1] = index;
    else found.push([index, index]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

function reason(job) { // its first part, and all of it where somebody opens it
  const [first, ...others] = job.why.split("; ");
  if (!others.length) return make("span", { class: "why" }, job.why);
  const details = make("details", { class: "why" }, make("summary", {}, first), others.join("; "));
  details.open = opened.has(job.id);
  details.addEventListener("toggle", () => (details.open ? opened.add(job.id) : opened.delete(job.id)));
  return details;
}

function row(job) {
  const cell = (text, kind, title) => make("td", { ...(kind ? { class: kind } : {}), "data-title": title }, text);
  const title = make("td", { class: "id" }, make("strong", {}, job.id));
  const about = [job.name, job.user === latest.user ? null : job.user, job.group].filter(Boolean).join(", ");
  if (about) title.append(make("span", { class: "why" }, about));
  const state = make("td", { class: `state ${job.state}` }, job.text);
  if (job.why) state.append(reason(job));
  const score = typeof job.score === "number" ? job.score.toFixed(2) : "-";
  return make("tr", {}, title, state,
    cell(job.processes ? (job.running ? `${job.running}/${job.processes}` : String(job.processes)) : "-", "number", "processes"),
    cell(job.devices.length ? (job.simulated ? "~" : "") + runs(job.devices) : "-", "", "GPUs"),
    cell(job.memory ? gib(job.memory) : "-", "number", "memory"),
    cell(time(job), "number", "time"),
    cell(score, "number", "score"),
    cell(job.what, "what", "command"));
}

function wanted(job) {
  const state = $("state").value;
  const text = $("find").value.toLowerCase();
  const fits = !state || (state === "ended" ? ENDED.has(job.state) : job.state === state);
  return fits && [job.id, job.name, job.user, job.group, job.what, job.text].some((one) => (one ?? "").toLowerCase().includes(text));
}

function draw() {
  if (latest === null) return;
  const jobs = latest.jobs.filter(wanted);
  const living = latest.jobs.filter((job) => !ENDED.has(job.state));
  const waiting = living.filter((job) => job.state === "queued").length;
  document.title = `${latest.host}: ${living.length - waiting} run, ${waiting} wait`;
  $("host").textContent = latest.host;
  $("problem").hidden = !latest.problem;
  $("problem").textContent = latest.problem ?? "";
  $("gpus").replaceChildren(...(latest.devices.length ? latest.devices.map((device) => gpu(device, latest)) : [make("p", {}, "no GPU")]));
  $("legend").replaceChildren(...legend(latest));
  $("jobs").replaceChildren(...jobs.map(row));
  $("none").hidden = jobs.length > 0;
  summary(`${living.length - waiting} run, ${waiting} wait`);
}

function summary(text) {
  if ($("summary").textContent !== text) $("summary").textContent = text; // it is read aloud when it changes
}

const events = new EventSource("/events");
events.onmessage = (event) => {
  const moment = JSON.parse(event.data);
  heard = Date.now();
  if (moment.error) {
    $("problem").hidden = false;
    $("problem").textContent = `${moment.error}. ${moment.hint ?? ""}`;
    return;
  }
  latest = moment;
  draw();
};
events.onerror = () => summary(heard ? `not connected since ${new Date(heard).toLocaleTimeString()}; this is what was seen last` : "not connected");
setInterval(draw, 5000); // times go on where nothing else changes
$("find").addEventListener("input", draw);
$("state").addEventListener("change", draw);
