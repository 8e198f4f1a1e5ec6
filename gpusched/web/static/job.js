// One job: what it is, its curves, its game, its processes, its log, its results; and what can be done to it.
import { $, ask, at, cell, fill, fillTexts, gib, jobAddress, make, show, span } from "/draw.js";
import { mayAct, time } from "/status.js";

const ENDED = new Set(["succeeded", "failed", "cancelled", "lost"]);
const MOST_POINTS = 1200;
const MOST_LINES = 5000;
const MEMBERS_MS = 5000;
const RETRY_MS = 5000;
const USED_MS = 60_000;
const STORED_MS = 1500; // after its end the daemon writes what it used
const ACTIONS = {
  stop: { text: "Stop", ask: (job) => `Stop ${job}? Its processes get SIGTERM and their grace to save their work.`, fits: (job) => !ENDED.has(job.state) },
  kill: { text: "Kill", ask: (job) => `Kill ${job}? Its processes end at once, and save nothing.`, fits: (job) => !ENDED.has(job.state) && job.state !== "queued" },
  hold: { text: "Hold", ask: (job) => `Keep ${job} from starting?`, fits: (job) => !job.held && (job.is_array ? !ENDED.has(job.state) : job.state === "queued") },
  release: { text: "Release", ask: (job) => `Let ${job} start when its turn comes?`, fits: (job) => job.held && !ENDED.has(job.state) },
  priority: { text: "Priority", ask: (job) => `Which priority has ${job}? A higher one comes first.`, fits: (job) => job.state === "queued", value: true },
  rerun: { text: "Run again", ask: (job) => `Queue the same as ${job} again?`, fits: () => true },
};
let id = null;
let host = "";
let job = null;
let events = null;
let over = false;
let lines = []; // of the log
let members = 0;
let clock = 0;
let used = 0;
let charts = new Map(); // by name: its chart and its figure
let curves = { time: [], numbers: {} };
let library = null;

const section = (part, visible) => { $(part).closest("section").hidden = !visible; };

function fact(name, value) {
  return value === null || value === undefined || value === "" ? [] : [make("dt", {}, name), make("dd", {}, value)];
}

const moment = (seconds) => (seconds ? new Date(1000 * seconds).toLocaleString() : null);

function drawFacts() {
  show($("job-title"), job.name ? `${job.id}: ${job.name}` : job.id);
  $("job-state").className = `state ${job.state}`;
  show($("job-state"), job.text);
  show($("job-why"), job.why ?? job.note ?? job.message);
  fillTexts($("job-facts"), [
    ...fact("On", host),
    ...fact("Command", job.what),
    ...fact("Parameters", Object.entries(job.parameters).map(([name, value]) => (value ? `${name} = ${value}` : name)).join(", ")),
    ...fact("Time", time(job)),
    ...fact("Time limit", job.limit === null ? null : span(job.limit)),
    ...fact("Submitted", moment(job.created)),
    ...fact("Started", moment(job.started)),
    ...fact("Ended", moment(job.ended)),
    ...fact("Ready", job.ready),
    ...fact("Hosts", job.hosts.join("\n")),
    ...fact("After", job.after.join(", ")),
    ...fact("Group", job.group),
    ...fact("Priority", job.priority ? String(job.priority) : null),
    ...fact("Start", job.attempt ? `${job.attempt + 1}, it was started again` : null),
    ...fact("User", job.user),
    ...fact("Directory", job.cwd),
    ...fact("Its files", job.run_dir)]);
  const fitting = Object.keys(ACTIONS).filter((name) => mayAct(host) && ACTIONS[name].fits(job));
  const buttons = [...$("job-actions").children];
  if (fitting.join() !== buttons.map((one) => one.dataset.do).join()) { // else a button that has the focus would lose it
    $("job-actions").replaceChildren(...fitting.map((name) => {
      const button = make("button", { type: "button", "data-do": name }, ACTIONS[name].text);
      button.addEventListener("click", () => act(name));
      return button;
    }));
  }
  document.title = `${job.id}: ${job.text}`;
}

async function act(name) {
  const dialog = $("confirm");
  const action = ACTIONS[name];
  const [asked, where] = [{ do: name, job: job.id }, host]; // the view may be of another job before it is confirmed
  $("confirm-text").textContent = action.ask(where ? `${job.id} of ${where}` : job.id);
  $("confirm-yes").textContent = action.text;
  $("confirm-label").hidden = !action.value;
  $("confirm-value").value = job.priority;
  $("confirm-value").required = Boolean(action.value);
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  if (dialog.returnValue !== "yes") return;
  if (action.value) asked.value = Number($("confirm-value").value);
  try {
    show($("job-problem"), "");
    show($("done"), (await ask(at("/do", where), { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(asked) })).done);
  } catch (error) {
    show($("job-problem"), error.message);
  }
}

function drawReplicas(replicas) {
  section("replicas", replicas.length > 0);
  $("replicas").replaceChildren(...replicas.map((one) => {
    const state = make("td", { class: `state ${one.state}` }, one.state);
    for (const text of [one.exit, one.warning]) if (text) state.append(make("span", { class: "why" }, text));
    return make("tr", {}, make("th", { scope: "row" }, one.node ? `${one.name} on ${one.node}` : one.name), state,
      cell(one.device === null ? "-" : String(one.device), "", "GPU"),
      cell(one.pid === null ? "-" : String(one.pid), "number", "pid"),
      cell(one.share ? gib(one.share) : "-", "number", "share"),
      cell(gib(one.used), "number", "used"),
      cell(gib(one.peak), "number", "peak"),
      cell(gib(one.host), "number", "host memory"),
      cell(String(one.restarts), "number", "restarts"));
  }));
  const logged = replicas.filter((one) => one.has_log).map((one) => one.name);
  section("log", logged.length > 0);
  const choices = ["", ...(logged.length > 1 ? logged : [])];
  const select = $("log-replica");
  if (!select.length || [...select.options].map((one) => one.value).join() !== choices.join()) {
    const chosen = select.value;
    select.replaceChildren(...choices.map((name) => make("option", { value: name }, name || "all")));
    select.value = choices.includes(chosen) ? chosen : "";
  }
}

function halved(part) { // two points become their mean
  const half = (values) => values.filter((_, index) => index % 2 === 0).map((value, index) => {
    const other = values[2 * index + 1];
    return value === null || other === null || other === undefined ? value ?? other ?? null : (value + other) / 2;
  });
  return { time: half(part.time), numbers: Object.fromEntries(Object.entries(part.numbers).map(([name, values]) => [name, half(values)])) };
}

function addCurves(part) {
  const before = curves.time.length;
  for (const name of Object.keys(part.numbers)) curves.numbers[name] ??= new Array(before).fill(null);
  curves.time.push(...part.time);
  for (const [name, values] of Object.entries(curves.numbers)) values.push(...(part.numbers[name] ?? new Array(part.time.length).fill(null)));
  while (curves.time.length > MOST_POINTS) curves = halved(curves);
  drawCurves().catch((error) => show($("job-problem"), error.message));
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const compact = new Intl.NumberFormat(undefined, { notation: "compact", maximumSignificantDigits: 4 });

function chart(Plot, name, data, place) {
  const axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
  return new Plot({
    width: place.clientWidth || 320,
    height: 150,
    legend: { show: false },
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false } },
    axes: [{ ...axis, size: 28, values: (_, ticks) => ticks.map((tick) => span(tick)) }, { ...axis, size: 52, values: (_, ticks) => ticks.map((tick) => compact.format(tick)) }],
    series: [{}, { label: name, stroke: colour("--j0"), width: 2, spanGaps: true, points: { show: data[0].length < 3 } }],
  }, data, place);
}

const short = (value) => (Math.abs(value) >= 1000 || Number.isInteger(value) ? value.toLocaleString(undefined, { maximumFractionDigits: 0 }) : value.toPrecision(4));

async function drawCurves() {
  if (library === null) {
    library = import("/uplot.js").then((found) => found.default);
    document.head.append(make("link", { rel: "stylesheet", href: "/uplot.css" }));
  }
  const Plot = await library;
  if (!curves.time.length) return;
  section("curves", true);
  const first = job?.started ?? curves.time[0];
  const x = curves.time.map((one) => Math.max(0, one - first));
  const names = Object.keys(curves.numbers).sort((a, b) => (b === "score") - (a === "score"));
  for (const name of names) {
    const values = curves.numbers[name];
    const known = values.filter((one) => one !== null);
    if (!known.length) continue;
    let one = charts.get(name);
    if (!one) {
      const [caption, place] = [make("figcaption"), make("div", { "aria-hidden": "true" })];
      one = { caption, place, figure: make("figure", {}, caption, place), plot: null };
      $("curves").append(one.figure);
      charts.set(name, one);
    }
    one.caption.textContent = `${name}: ${short(known.at(-1))}, from ${short(Math.min(...known))} to ${short(Math.max(...known))}`;
    if (one.plot === null) one.plot = chart(Plot, name, [x, values], one.place);
    else one.plot.setData([x, values]);
  }
}

function newCharts() { // in other colours, or in another width
  for (const one of charts.values()) {
    one.plot?.destroy();
    one.plot = null;
  }
  drawCurves().catch(() => {});
}

function drawFiles(files) {
  section("files", files.length > 0);
  const address = (file) => at("/job/file", host, { id, name: file.name, changed: file.changed });
  const size = (bytes) => (bytes < 1024 ? `${bytes} B` : bytes < 1 << 20 ? `${(bytes / 1024).toFixed(1)} KiB` : gib(Math.round(bytes / (1 << 20))));
  const known = new Map([...$("pictures").children, ...$("files").children].map((one) => [one.dataset.stamp, one]));
  const kept = (file, kind, draw) => { // what has not changed stays, and a picture is not fetched again
    const stamp = [kind, file.name, file.bytes, file.changed].join("/");
    return known.get(stamp) ?? draw({ "data-stamp": stamp, "data-key": file.name });
  };
  fill($("pictures"), files.filter((one) => one.picture).slice(0, 12).map((file) => kept(file, "picture", (data) =>
    make("figure", data, make("img", { src: address(file), alt: file.name, loading: "lazy" }), make("figcaption", {}, file.name)))));
  fill($("files"), files.map((file) => kept(file, "file", (data) =>
    make("li", data, make("a", { href: address(file), download: file.name.split("/").at(-1) }, file.name), ` ${size(file.bytes)}, ${new Date(1000 * file.changed).toLocaleString()}`))));
}

async function drawMembers() {
  const asked = id;
  try {
    const found = await ask(at("/job/members", host, { id }));
    if (asked !== id) return; // another job is shown meanwhile
    section("members", found.members.length > 0);
    $("members-head").replaceChildren(make("tr", {}, ...["Member", ...found.names, "State", "Time", "Score"].map((name) => make("th", { scope: "col" }, name))));
    fill($("members"), found.members.map((one) =>
      make("tr", { "data-key": one.id }, make("th", { scope: "row" }, make("a", { href: jobAddress(one.id, host) }, one.id)),
        ...found.names.map((name) => cell(one.parameters[name] ?? "", "", name)),
        cell(one.state, `state ${one.state}`, "state"),
        cell(one.seconds === null ? "-" : span(one.seconds), "", "time"),
        cell(one.score === null ? "-" : short(one.score), "number", "score"))));
  } catch (error) {
    if (asked === id) show($("job-problem"), error.message);
  }
}

async function drawUsage() { // of a job that runs it is a minute old at most
  const asked = [id, host].join("/");
  try {
    const found = await ask(at("/job/usage", host, { id }));
    if (asked !== [id, host].join("/")) return;
    section("usage", found.lines.length > 0);
    const title = (name) => name.replace(/^./, (first) => first.toUpperCase());
    $("usage-head").replaceChildren(make("tr", {}, ...found.titles.map((name) => make("th", { scope: "col" }, title(name)))));
    $("usage").replaceChildren(...found.lines.map((line) => make("tr", {}, ...line.map((text, index) => cell(text, "", found.titles[index])))));
    show($("usage-total"), found.total);
  } catch { // without a daemon it is not known
    section("usage", false);
  }
}

const plain = (line) => line.replace(/\x1b\[[0-9;?]*[A-Za-z]/g, "");

function addLines(part) {
  lines.push(...part.lines.map(plain));
  lines.splice(0, lines.length - MOST_LINES);
  $("log").textContent = [...lines, ...part.unfinished.map(plain)].join("\n");
  if ($("log-follow").checked) $("log").scrollTop = $("log").scrollHeight;
}

function take(part) {
  if (part.error) {
    show($("job-problem"), `${part.error}. ${part.hint}`);
    return;
  }
  if (part.job) {
    job = part.job;
    drawFacts();
    if (job.is_array && !members) {
      drawMembers();
      members = setInterval(drawMembers, MEMBERS_MS);
    }
  }
  if (part.replicas) drawReplicas(part.replicas);
  if (part.curves) addCurves(part.curves);
  if (part.notes?.length) {
    $("notes").hidden = false;
    $("notes").append(...part.notes.map((one) => make("li", {}, one)));
  }
  if (part.frame !== undefined) {
    section("frame", Boolean(part.frame));
    $("frame").textContent = part.frame;
  }
  if (part.files) drawFiles(part.files);
  if (part.log_problem) $("log").textContent = part.log_problem;
  if (part.lines) addLines(part);
}

function clear() {
  [job, over] = [null, false];
  charts.forEach((one) => one.plot?.destroy());
  charts = new Map();
  for (const part of ["curves", "members-head", "members", "replicas", "usage-head", "usage", "files", "pictures", "job-facts", "job-actions", "log-replica"]) $(part).replaceChildren();
  forget();
  for (const part of ["curves", "frame", "members", "replicas", "usage", "log", "files"]) section(part, false);
  for (const part of ["job-title", "job-state", "job-why"]) show($(part), "");
}

function forget() { // a stream begins with all reports, and the last lines of the log
  curves = { time: [], numbers: {} };
  lines = [];
  $("log").textContent = "";
  $("notes").replaceChildren();
  $("notes").hidden = true;
}

export function openView(wanted, where) {
  clear();
  [id, host] = [wanted ?? "", where];
  show($("job-title"), id);
  $("job-title").focus({ preventScroll: true });
  resume();
  clock = setInterval(() => job && drawFacts(), 5000);
  drawUsage();
}

function follow() {
  const wanted = id;
  const opened = new EventSource(at("/job/events", host, { id, replica: $("log-replica").value }));
  events = opened;
  opened.onopen = () => show($("job-problem"), "");
  opened.onmessage = (event) => {
    const part = JSON.parse(event.data);
    take(part);
    if (!part.over) return;
    over = true;
    opened.close();
    clearInterval(members);
    clearInterval(used);
    if (job?.is_array) drawMembers();
    setTimeout(drawUsage, STORED_MS);
  };
  opened.onerror = () => { // it begins again, unless it was refused
    if (opened.readyState !== EventSource.CLOSED) {
      forget();
      return;
    }
    ask(at("/hosts")).then(
      () => show($("job-problem"), `${wanted} cannot be shown now: ${host ? `${host} is away, or ` : ""}too many pages are open`),
      (error) => show($("job-problem"), error.message)); // such as a login that is over
    setTimeout(() => events === opened && refollow(), RETRY_MS);
  };
}

export function resume() {
  if (events !== null || over) return;
  forget();
  follow();
  used = setInterval(drawUsage, USED_MS);
}

export function pause() {
  events?.close();
  clearInterval(members);
  clearInterval(used);
  [events, members] = [null, 0];
}

export function closeView() {
  pause();
  $("confirm").close("no");
  clearInterval(clock);
  show($("job-problem"), "");
}

function refollow() {
  over = false;
  pause();
  resume();
}

$("log-replica").addEventListener("change", refollow);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", newCharts);
let resized = 0;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(newCharts, 200);
});
