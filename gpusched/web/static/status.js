// GPUs and jobs of this host, and of others. The whole moment of each is fetched once; then come the changes, each with
// its number.
import { $, ask, at, bar, cell, fill, gib, jobAddress, jobOf, legendEntry, make, runs, shape, show, span } from "/draw.js";

const ENDED = new Set(["succeeded", "failed", "cancelled", "lost"]);
const KINDS = { foreign: "processes of no job", other: "used, not known by whom", others: "jobs of others", reserved: "kept by the driver", free: "free" };
const COLOURS = 6;
const PAGE = 200;
const HOUR_MS = 3_600_000;
const HIDDEN_MS = 15_000;
const POINT_MS = 30_000; // as the server's
const ANSWER_MS = 70_000;
const AGAIN_MS = 1000;
const REFRESH_MS = 5000;
// By name, "" for this host. `moment`: { number, host, user, devices, jobs: Map by id, order }; `heard`: the latest number
// of its events; `stale`: some were missed; `away`: { since, why }; `asking`: a promise while it is asked, and `wanted`
// what it is to be asked for then: 1: the whole moment, 2: the last hour, too.
const machines = new Map([["", newMachine("", false)]]);
const here = machines.get("");
let heard = 0;
let shown = PAGE;
let drawn = new Map(); // the row of each job, and what it was drawn from
const opened = new Set();
const colours = new Map();
const history = new Map(); // by host and uuid: how busy it was, for an hour
let events = null;
let wantsEvents = false;
let retry = 0;
let asking = 0;
let broken = false; // a host's moment was left out while all were drawn

function newMachine(name, readOnly) {
  return { name, readOnly, moment: null, heard: 0, stale: true, away: null, problem: null, asking: null, wanted: 0, refreshing: 0, drawnDevices: null, place: make("div", { class: "machine" }) };
}

function shielded(machine, work, otherwise) { // what another host sent keeps nothing else from being drawn
  try {
    return work();
  } catch (error) {
    if (machine === here) throw error;
    Object.assign(machine, { moment: null, stale: true, problem: "it sent what cannot be shown" });
    broken = true;
    return otherwise;
  }
}

const known = () => [...machines.values()].filter((one) => one.moment !== null && !one.moment.error);

const labelOf = (machine) => machine.name || machine.moment?.host || "this host";

const keyOf = (machine, id) => `${machine.name}/${id}`; // of a job, or of a GPU

function chooseColours() { // a job keeps its colour while it is drawn; two have the same only where there are more than colours
  const keysOf = (machine) => machine.moment.devices.flatMap((device) => device.parts.filter((part) => part.job !== null).map((part) => keyOf(machine, part.job)));
  const jobs = new Set(known().flatMap((one) => shielded(one, () => keysOf(one), [])));
  for (const job of colours.keys()) if (!jobs.has(job)) colours.delete(job);
  for (const job of jobs) {
    if (colours.has(job)) continue;
    const wanted = Number(/(\d+)(\[\d+\])?$/.exec(job)?.[1] ?? 0) % COLOURS;
    const taken = new Set(colours.values());
    colours.set(job, [...Array(COLOURS).keys()].map((step) => (wanted + step) % COLOURS).find((one) => !taken.has(one)) ?? wanted);
  }
}

const colourOf = (machine, job) => `j${colours.get(keyOf(machine, job))}`;

function textOf(part) {
  if (part.job === null) return `${KINDS[part.kind] ?? part.kind}: ${gib(part.mib)}`;
  return part.kind === "used" ? `${part.job} uses ${gib(part.mib)}` : `${part.job} has ${gib(part.mib)} more`;
}

function remember(machine) { // a point for half a minute is the mean of what was seen in it
  const now = Date.now();
  for (const device of machine.moment.devices) {
    if (device.busy === null) continue;
    const kept = history.get(keyOf(machine, device.uuid)) ?? [];
    const last = kept.at(-1);
    if (last && now - last.time < POINT_MS) {
      last.busy += (device.busy - last.busy) / ++last.seen;
    } else {
      kept.push({ time: now, busy: device.busy, seen: 1 });
      while (now - kept[0].time > HOUR_MS) kept.shift();
    }
    history.set(keyOf(machine, device.uuid), kept);
  }
}

function sparkline(machine, device) { // how busy it was in the last hour, as far as the server saw it
  const kept = history.get(keyOf(machine, device.uuid)) ?? [];
  if (kept.length < 2) return null;
  const [first, last] = [kept[0].time, kept.at(-1).time];
  const points = kept.map(({ time, busy }) => `${((100 * (time - first)) / (last - first)).toFixed(1)},${(20 - busy / 5).toFixed(1)}`);
  const mean = kept.reduce((sum, { busy }) => sum + busy, 0) / kept.length;
  const label = `busy in the last ${span((last - first) / 1000)}: ${Math.round(mean)} % on average`;
  const title = shape("title", {});
  title.textContent = label;
  return shape("svg", { class: "sparkline", viewBox: "0 0 100 20", preserveAspectRatio: "none", role: "img", "aria-label": label }, title, shape("polyline", { points: points.join(" ") }));
}

function gpu(machine, device) {
  const numbers = [
    device.busy === null ? null : `${device.busy} %`,
    device.total === null ? null : `${gib(device.used)} of ${gib(device.total)}`,
    device.celsius === null ? null : `${device.celsius} °C`,
    device.watts === null ? null : device.most_watts === null ? `${device.watts} W` : `${device.watts} of ${device.most_watts} W`,
  ].filter((text) => text !== null);
  const note = device.problem ?? device.slowed;
  const parts = device.parts.map((part) => ({ mib: part.mib, text: textOf(part), kind: part.job === null ? part.kind : `${colourOf(machine, part.job)} ${part.kind}` }));
  const total = parts.reduce((sum, part) => sum + part.mib, 0);
  return make("article", { class: device.health === "ok" ? "gpu" : "gpu bad", "aria-label": machines.size > 1 ? `GPU ${device.label} of ${labelOf(machine)}` : `GPU ${device.label}` },
    make("div", { class: "top" },
      make("span", { class: "name", title: device.uuid }, `GPU ${device.label}  ${device.name}`),
      make("span", { class: "numbers" }, sparkline(machine, device), ...numbers.map((text) => make("span", {}, text)))),
    device.total === null ? null : bar(parts, total),
    note ? make("p", { class: "note" }, note) : null);
}

function legend(machine) {
  const parts = machine.moment.devices.flatMap((device) => device.parts);
  const jobs = [...new Set(parts.map((part) => part.job))].filter((job) => job !== null);
  const kinds = Object.keys(KINDS).filter((kind) => parts.some((part) => part.kind === kind));
  return [...jobs.map((job) => legendEntry(colourOf(machine, job), job)), ...(jobs.length ? [legendEntry("j0 leased", "paler: given, not used")] : []), ...kinds.map((kind) => legendEntry(kind, KINDS[kind]))];
}

export function time(job) {
  const now = Math.floor(Date.now() / 1000);
  if (job.state === "queued") return `waits ${span(Math.max(0, now - job.created))}`;
  if (job.started === null || (ENDED.has(job.state) && job.ended === null)) return "-";
  return span(Math.max(0, (ENDED.has(job.state) ? job.ended : now) - job.started));
}

function reason(machine, job) { // its first part, and all of it where somebody opens it
  const [first, ...others] = job.why.split("; ");
  if (!others.length) return make("span", { class: "why" }, job.why);
  const details = make("details", { class: "why" }, make("summary", {}, first), others.join("; "));
  details.open = opened.has(keyOf(machine, job.id));
  details.addEventListener("toggle", () => (details.open ? opened.add(keyOf(machine, job.id)) : opened.delete(keyOf(machine, job.id))));
  return details;
}

function row(machine, job) {
  const title = make("td", { class: "id" }, make("a", { href: jobAddress(job.id, machine.name) }, make("strong", {}, job.id)));
  const about = aboutOf(machine, job).join(", ");
  if (about) title.append(make("span", { class: "why" }, about));
  const state = make("td", { class: `state ${job.state}` }, job.text);
  if (job.members) state.append(make("progress", { max: job.members.count, value: job.members.ended, "aria-label": `${job.members.ended} of ${job.members.count} members have ended` }));
  if (job.why) state.append(reason(machine, job));
  const small = job.score !== 0 && Math.abs(job.score) < 0.1;
  const score = typeof job.score === "number" ? (small ? String(Number(job.score.toPrecision(3))) : job.score.toFixed(2)) : "-";
  return make("tr", { "data-key": keyOf(machine, job.id) }, title, state,
    cell(job.processes ? (job.running ? `${job.running}/${job.processes}` : String(job.processes)) : "-", "number", "processes"),
    cell(job.devices.length ? (job.simulated ? "~" : "") + runs(job.devices) : "-", "", "GPUs"),
    cell(job.memory ? gib(job.memory) : "-", "number", "memory"),
    cell(time(job), "number time", "time"),
    cell(score, "number", "score"),
    cell(job.what, "what", "command"));
}

function aboutOf(machine, job) {
  return [machines.size > 1 ? `on ${labelOf(machine)}` : null, job.name, job.user === machine.moment.user ? null : job.user, job.group].filter(Boolean);
}

function wanted(machine, job) {
  const state = $("state").value;
  const text = $("find").value.toLowerCase();
  const fits = !state || (state === "ended" ? ENDED.has(job.state) : job.state === state);
  return fits && [job.id, job.user, job.what, job.text, ...aboutOf(machine, job)].some((one) => (one ?? "").toLowerCase().includes(text));
}

function rowOf(machine, job) { // one that stays as it is is not drawn again
  const before = drawn.get(keyOf(machine, job.id));
  const found = before?.job === job ? before : { job, row: row(machine, job) };
  const [text, box] = [time(job), found.row.querySelector(".time")];
  if (box.textContent !== text) box.textContent = text;
  return found;
}

function drawJobs() {
  const jobsOf = (machine) => machine.moment.order.map((id) => machine.moment.jobs.get(id)).filter((job) => wanted(machine, job));
  const jobs = known().flatMap((one) => shielded(one, () => jobsOf(one), []).map((job) => [one, job]));
  const now = new Map();
  for (const [one, job] of jobs.slice(0, shown)) shielded(one, () => now.set(keyOf(one, job.id), rowOf(one, job)));
  fill($("jobs"), [...now.values()].map((one) => one.row));
  drawn = now;
  $("none").hidden = jobs.length > 0;
  $("more").hidden = jobs.length <= shown;
  $("more").textContent = `Show ${Math.min(PAGE, jobs.length - shown)} more of ${jobs.length - shown}`;
}

function countsOf(machine) {
  let [running, waiting] = [0, 0];
  for (const job of machine.moment.jobs.values()) {
    if (job.state === "queued") waiting += 1;
    else if (!ENDED.has(job.state)) running += 1;
  }
  return [running, waiting];
}

function troubleOf(machine) {
  if (machine.away) return `away since ${new Date(1000 * machine.away.since).toLocaleTimeString()}: ${machine.away.why}`;
  return machine.problem ?? machine.moment?.problem ?? machine.moment?.error;
}

function headingOf(machine) { // of one among several
  const trouble = troubleOf(machine);
  const [running, waiting] = known().includes(machine) ? countsOf(machine) : [0, 0];
  return make("div", { class: "top" }, make("h3", {}, labelOf(machine)),
    make("span", { class: trouble ? "trouble" : "why" }, trouble ?? `${running} run, ${waiting} wait${machine.readOnly ? "; shown, not acted on" : ""}`));
}

function drawMachine(machine) {
  const several = machines.size > 1;
  const devices = known().includes(machine) ? machine.moment.devices : null;
  machine.place.classList.toggle("away", machine.away !== null);
  if (devices === machine.drawnDevices && machine.place.childElementCount) { // else what somebody points at would go each second
    if (several) machine.place.firstElementChild.replaceWith(headingOf(machine));
    return;
  }
  machine.drawnDevices = devices;
  chooseColours();
  machine.place.replaceChildren(...(several ? [headingOf(machine)] : []), ...(devices === null ? [] : [
    make("div", { class: "gpus" }, ...(devices.length ? devices.map((device) => gpu(machine, device)) : [make("p", {}, machine.moment.none)])),
    make("ul", { class: "legend", "aria-label": `Colours${several ? ` of ${labelOf(machine)}` : ""}` }, ...legend(machine))]));
}

function drawTitle(text) {
  const [job, host] = jobOf(location.hash);
  const row = machines.get(host)?.moment?.jobs?.get(job);
  if (job === null) document.title = `${here.moment.host}: ${text}`;
  else if (row && document.hidden) shielded(machines.get(host), () => { document.title = `${row.id}: ${row.text}`; }); // else its view has later news
}

function draw() {
  if (here.moment === null) return;
  broken = false;
  const failed = Boolean(here.moment.error);
  show($("problem"), failed ? `${here.moment.error}. ${here.moment.hint ?? ""}` : machines.size > 1 ? null : here.moment.problem);
  if (failed && machines.size === 1) return;
  const counts = known().map((one) => shielded(one, () => countsOf(one), [0, 0]));
  const [running, waiting] = [0, 1].map((place) => counts.reduce((sum, one) => sum + one[place], 0));
  const text = `${running} run, ${waiting} wait`;
  show($("summary"), text);
  if (!failed) {
    show($("host"), here.moment.host);
    drawTitle(text);
  }
  if ($("status-view").hidden) return;
  if ($("gpus").childElementCount !== machines.size) $("gpus").replaceChildren(...[...machines.values()].map((one) => one.place));
  for (const one of machines.values()) if (!shielded(one, () => drawMachine(one) ?? true)) drawMachine(one);
  drawJobs();
  if (broken) draw();
}

function merge(machine, part, whole) {
  const { jobs, order, ...others } = part;
  const moment = machine.moment;
  const found = whole ? new Map() : moment.jobs;
  for (const job of jobs) found.set(job.id, job);
  if (order) {
    const ids = new Set(order);
    for (const id of [...found.keys()]) if (!ids.has(id)) found.delete(id);
  }
  machine.moment = { ...(whole || "host" in others || "error" in others ? {} : moment), ...others, jobs: found, order: (order ?? moment.order).filter((id) => found.has(id)) };
  if ("devices" in others) remember(machine);
}

function take(machine, part, whole) {
  shielded(machine, () => {
    merge(machine, part, whole);
    [machine.problem, machine.stale] = [null, false];
  });
  heard = Date.now();
  draw();
}

async function fetchWhole(machine) {
  try {
    take(machine, await ask(at("/moment", machine.name), { signal: AbortSignal.timeout(ANSWER_MS) }), true);
  } catch (error) {
    machine.problem = error.message;
    if (machine === here) show($("summary"), error.status === 401 ? error.message : "not connected");
    else draw();
    throw error;
  }
}

async function fetchHistory(machine) {
  const found = await ask(at("/history", machine.name), { signal: AbortSignal.timeout(ANSWER_MS) });
  const last = Date.now() - 1000 * found.age_s;
  for (const [uuid, values] of Object.entries(found.busy)) {
    const points = values.map((busy, index) => ({ time: last - 1000 * found.every_s * (values.length - 1 - index), busy, seen: 1 }));
    history.set(keyOf(machine, uuid), points.filter((point) => point.busy !== null));
  }
  machine.drawnDevices = null;
  draw();
}

async function fetchWanted(machine) {
  while (machine.wanted) {
    const withHistory = machine.wanted === 2;
    machine.wanted = 0;
    await fetchWhole(machine);
    if (withHistory) await fetchHistory(machine).catch(() => {}); // then it has no hour before
    if (machine.moment?.number < machine.heard) machine.wanted = Math.max(machine.wanted, 1);
    if (machine.wanted) await new Promise((done) => setTimeout(done, AGAIN_MS));
  }
}

function fetchMachine(machine, wanted) { // once at a time: what is wanted meanwhile comes after it
  machine.wanted = Math.max(machine.wanted, wanted);
  machine.asking ??= fetchWanted(machine).finally(() => { machine.asking = null; });
  return machine.asking;
}

function refresh(machine, wanted) { // until it is known again
  clearTimeout(machine.refreshing);
  machine.stale = true;
  fetchMachine(machine, wanted).catch(() => {
    machine.refreshing = setTimeout(() => machine.stale && !machine.away && wantsEvents && refresh(machine, wanted), REFRESH_MS);
  });
}

function news(machine, part) {
  machine.away = part.away ?? null;
  if (part.away) {
    draw();
  } else if (part.number === undefined) {
    machine.heard = 0;
    refresh(machine, 2);
  } else {
    machine.heard = part.number;
    if (machine.asking !== null) return;
    if (!machine.stale && part.number === machine.moment.number + 1) take(machine, part, false);
    else if (machine.stale || part.number > machine.moment.number) refresh(machine, 1);
  }
}

async function follow() {
  if (machines.size === 1) for (const one of (await ask(at("/hosts"))).hosts) if (!machines.has(one.name)) machines.set(one.name, newMachine(one.name, one.read_only));
  await fetchMachine(here, 2);
  if (!wantsEvents) return;
  events?.close();
  const others = [...machines.values()].filter((one) => one !== here);
  events = new EventSource(at("/events", "", { after: here.moment.number, host: others.map((one) => one.name) }));
  events.onmessage = (event) => news(here, JSON.parse(event.data));
  for (const one of others) events.addEventListener(`at-${one.name}`, (event) => news(one, JSON.parse(event.data)));
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
  asking = setInterval(() => machines.forEach((one) => fetchMachine(one, 1).catch(() => {})), HIDDEN_MS);
}

export const mayAct = (host) => !machines.get(host)?.readOnly;

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
