// GPUs and jobs. The whole moment is fetched once; then come the changes, each with its number.
import { $, ask, bar, cell, gib, legendEntry, make, runs, shape, show, span } from "/draw.js";

const ENDED = new Set(["succeeded", "failed", "cancelled", "lost"]);
const KINDS = { foreign: "processes of no job", other: "used, not known by whom", others: "jobs of others", reserved: "kept by the driver", free: "free" };
const COLOURS = 6;
const PAGE = 200;
const HOUR_MS = 3_600_000;
const HIDDEN_MS = 15_000;
const POINT_MS = 30_000; // as the server's
let moment = null; // { number, host, user, devices, jobs: Map by id, order }
let heard = 0;
let shown = PAGE;
let drawn = new Map(); // the row of each job, and what it was drawn from
const opened = new Set();
const colours = new Map();
const history = new Map(); // by uuid: how busy it was, for an hour
let drawnDevices = null;
let events = null;
let wantsEvents = false;
let retry = 0;
let asking = 0;

function chooseColours() { // a job keeps its colour while it is drawn; two have the same only where there are more than colours
  const jobs = new Set(moment.devices.flatMap((device) => device.parts.map((part) => part.job)).filter((job) => job !== null));
  for (const job of colours.keys()) if (!jobs.has(job)) colours.delete(job);
  for (const job of jobs) {
    if (colours.has(job)) continue;
    const wanted = Number(/(\d+)(\[\d+\])?$/.exec(job)?.[1] ?? 0) % COLOURS;
    const taken = new Set(colours.values());
    colours.set(job, [...Array(COLOURS).keys()].map((step) => (wanted + step) % COLOURS).find((one) => !taken.has(one)) ?? wanted);
  }
}

const colourOf = (job) => `j${colours.get(job)}`;

function textOf(part) {
  if (part.job === null) return `${KINDS[part.kind] ?? part.kind}: ${gib(part.mib)}`;
  return part.kind === "used" ? `${part.job} uses ${gib(part.mib)}` : `${part.job} has ${gib(part.mib)} more`;
}

function remember(devices) { // a point for half a minute is the mean of what was seen in it
  const now = Date.now();
  for (const device of devices) {
    if (device.busy === null) continue;
    const kept = history.get(device.uuid) ?? [];
    const last = kept.at(-1);
    if (last && now - last.time < POINT_MS) {
      last.busy += (device.busy - last.busy) / ++last.seen;
    } else {
      kept.push({ time: now, busy: device.busy, seen: 1 });
      while (now - kept[0].time > HOUR_MS) kept.shift();
    }
    history.set(device.uuid, kept);
  }
}

function sparkline(device) { // how busy it was in the last hour, as far as the server saw it
  const kept = history.get(device.uuid) ?? [];
  if (kept.length < 2) return null;
  const [first, last] = [kept[0].time, kept.at(-1).time];
  const points = kept.map(({ time, busy }) => `${((100 * (time - first)) / (last - first)).toFixed(1)},${(20 - busy / 5).toFixed(1)}`);
  const mean = kept.reduce((sum, { busy }) => sum + busy, 0) / kept.length;
  const label = `busy in the last ${span((last - first) / 1000)}: ${Math.round(mean)} % on average`;
  const title = shape("title", {});
  title.textContent = label;
  return shape("svg", { class: "sparkline", viewBox: "0 0 100 20", preserveAspectRatio: "none", role: "img", "aria-label": label }, title, shape("polyline", { points: points.join(" ") }));
}

function gpu(device) {
  const numbers = [
    device.busy === null ? null : `${device.busy} %`,
    device.total === null ? null : `${gib(device.used)} of ${gib(device.total)}`,
    device.celsius === null ? null : `${device.celsius} °C`,
    device.watts === null ? null : device.most_watts === null ? `${device.watts} W` : `${device.watts} of ${device.most_watts} W`,
  ].filter((text) => text !== null);
  const note = device.problem ?? device.slowed;
  const parts = device.parts.map((part) => ({ mib: part.mib, text: textOf(part), kind: part.job === null ? part.kind : `${colourOf(part.job)} ${part.kind}` }));
  const total = parts.reduce((sum, part) => sum + part.mib, 0);
  return make("article", { class: device.health === "ok" ? "gpu" : "gpu bad", "aria-label": `GPU ${device.label}` },
    make("div", { class: "top" },
      make("span", { class: "name", title: device.uuid }, `GPU ${device.label}  ${device.name}`),
      make("span", { class: "numbers" }, sparkline(device), ...numbers.map((text) => make("span", {}, text)))),
    device.total === null ? null : bar(parts, total),
    note ? make("p", { class: "note" }, note) : null);
}

function legend() {
  const parts = moment.devices.flatMap((device) => device.parts);
  const jobs = [...new Set(parts.map((part) => part.job))].filter((job) => job !== null);
  const kinds = Object.keys(KINDS).filter((kind) => parts.some((part) => part.kind === kind));
  return [...jobs.map((job) => legendEntry(colourOf(job), job)), ...(jobs.length ? [legendEntry("j0 leased", "paler: given, not used")] : []), ...kinds.map((kind) => legendEntry(kind, KINDS[kind]))];
}

export function time(job) {
  const now = Math.floor(Date.now() / 1000);
  if (job.state === "queued") return `waits ${span(Math.max(0, now - job.created))}`;
  if (job.started === null || (ENDED.has(job.state) && job.ended === null)) return "-";
  return span(Math.max(0, (ENDED.has(job.state) ? job.ended : now) - job.started));
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
  const title = make("td", { class: "id" }, make("a", { href: `#/job/${encodeURIComponent(job.id)}` }, make("strong", {}, job.id)));
  const about = [job.name, job.user === moment.user ? null : job.user, job.group].filter(Boolean).join(", ");
  if (about) title.append(make("span", { class: "why" }, about));
  const state = make("td", { class: `state ${job.state}` }, job.text);
  if (job.members) state.append(make("progress", { max: job.members.count, value: job.members.ended, "aria-label": `${job.members.ended} of ${job.members.count} members have ended` }));
  if (job.why) state.append(reason(job));
  const score = typeof job.score === "number" ? job.score.toFixed(2) : "-";
  return make("tr", {}, title, state,
    cell(job.processes ? (job.running ? `${job.running}/${job.processes}` : String(job.processes)) : "-", "number", "processes"),
    cell(job.devices.length ? (job.simulated ? "~" : "") + runs(job.devices) : "-", "", "GPUs"),
    cell(job.memory ? gib(job.memory) : "-", "number", "memory"),
    cell(time(job), "number time", "time"),
    cell(score, "number", "score"),
    cell(job.what, "what", "command"));
}

function wanted(job) {
  const state = $("state").value;
  const text = $("find").value.toLowerCase();
  const fits = !state || (state === "ended" ? ENDED.has(job.state) : job.state === state);
  return fits && [job.id, job.name, job.user, job.group, job.what, job.text].some((one) => (one ?? "").toLowerCase().includes(text));
}

function drawJobs() { // rows that stay as they are are not drawn again
  const jobs = moment.order.map((id) => moment.jobs.get(id)).filter(wanted);
  const now = new Map();
  for (const job of jobs.slice(0, shown)) {
    const before = drawn.get(job.id);
    now.set(job.id, before?.job === job ? before : { job, row: row(job) });
  }
  const rows = [...now.values()].map((one) => one.row);
  const place = $("jobs");
  if (rows.length !== place.childElementCount || rows.some((one, index) => place.children[index] !== one)) place.replaceChildren(...rows);
  for (const { job, row: one } of now.values()) {
    const text = time(job);
    const box = one.querySelector(".time");
    if (box.textContent !== text) box.textContent = text;
  }
  drawn = now;
  $("none").hidden = jobs.length > 0;
  $("more").hidden = jobs.length <= shown;
  $("more").textContent = `Show ${Math.min(PAGE, jobs.length - shown)} more of ${jobs.length - shown}`;
}

function draw() {
  if (moment === null) return;
  show($("problem"), moment.error ? `${moment.error}. ${moment.hint ?? ""}` : moment.problem);
  if (moment.error) return;
  let [running, waiting] = [0, 0];
  for (const job of moment.jobs.values()) {
    if (job.state === "queued") waiting += 1;
    else if (!ENDED.has(job.state)) running += 1;
  }
  const text = `${running} run, ${waiting} wait`;
  show($("host"), moment.host);
  show($("summary"), text);
  const [, id] = /^#\/job\/(.+)$/.exec(location.hash) ?? [];
  const job = moment.jobs.get(id);
  if (!id) document.title = `${moment.host}: ${text}`;
  else if (job && document.hidden) document.title = `${job.id}: ${job.text}`; // else its view has later news
  if ($("status-view").hidden) return;
  if (moment.devices !== drawnDevices) { // else what somebody points at would go each second
    drawnDevices = moment.devices;
    chooseColours();
    $("gpus").replaceChildren(...(moment.devices.length ? moment.devices.map(gpu) : [make("p", {}, "no GPU")]));
    $("legend").replaceChildren(...legend());
  }
  drawJobs();
}

function take(part, whole) {
  const { jobs, order, ...others } = part;
  const known = whole ? new Map() : moment.jobs;
  for (const job of jobs) known.set(job.id, job);
  const ids = order ?? moment.order;
  if (order) for (const id of [...known.keys()].filter((id) => !ids.includes(id))) known.delete(id);
  moment = { ...(whole || "host" in others || "error" in others ? {} : moment), ...others, jobs: known, order: ids };
  if ("devices" in others) remember(moment.devices);
  heard = Date.now();
  draw();
}

async function fetchWhole() {
  try {
    take(await ask("/moment"), true);
  } catch (error) {
    show($("summary"), error.status === 401 ? error.message : "not connected");
    throw error;
  }
}

async function fetchHistory() {
  const found = await ask("/history");
  const last = Date.now() - 1000 * found.age_s;
  history.clear();
  for (const [uuid, values] of Object.entries(found.busy)) {
    const points = values.map((busy, index) => ({ time: last - 1000 * found.every_s * (values.length - 1 - index), busy, seen: 1 }));
    history.set(uuid, points.filter((point) => point.busy !== null));
  }
  drawnDevices = null;
  draw();
}

async function follow() {
  await fetchWhole();
  await fetchHistory();
  if (!wantsEvents) return;
  events?.close();
  events = new EventSource(`/events?after=${moment.number}`);
  events.onmessage = (event) => {
    const part = JSON.parse(event.data);
    if (part.number === moment.number + 1) take(part, false);
    else if (part.number > moment.number) fetchWhole().catch(() => {});
  };
  events.addEventListener("again", () => fetchWhole().catch(() => {}));
  events.onerror = () => {
    show($("summary"), heard ? `not connected since ${new Date(heard).toLocaleTimeString()}; this is what was seen last` : "not connected");
    stop();
    again();
  };
}

function stop() {
  clearTimeout(retry);
  events?.close();
  events = null;
}

function again() {
  retry = setTimeout(start, 2000);
}

function start() {
  clearTimeout(retry);
  follow().catch((error) => error.status === 401 || !wantsEvents || again());
}

export function resume() {
  wantsEvents = true;
  clearInterval(asking);
  start();
}

export function pause() { // its title goes on
  wantsEvents = false;
  stop();
  clearInterval(asking);
  asking = setInterval(() => fetchWhole().catch(() => {}), HIDDEN_MS);
}

export function openView() {
  draw();
}

setInterval(draw, 5000); // times go on where nothing else changes
for (const [id, kind] of [["find", "input"], ["state", "change"]]) {
  $(id).addEventListener(kind, () => {
    shown = PAGE;
    draw();
  });
}
$("more").addEventListener("click", () => {
  shown += PAGE;
  draw();
});
