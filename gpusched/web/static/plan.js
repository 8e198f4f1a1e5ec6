// Try a plan: what is typed and moved is planned again, by the planner itself.
import { $, ask, at, bar, gib, legendEntry, make, show } from "/draw.js";

const KEPT = { jobs: ["others", "jobs that have it"], foreign: ["foreign", "processes of no job"], reserved: ["reserved", "kept by the driver"], headroom: ["headroom", "kept free"], free: ["free", "free"] };
let filled = false;
let asked = 0;

function option(value, text = value) {
  return make("option", { value }, text);
}

async function fill() {
  const found = await ask(at("/choices"));
  $("plan-workload").replaceChildren(...found.workloads.map((one) => option(one)));
  $("plan-machines").replaceChildren(...found.machines.map((one) => option(one, one === "here" ? "this host" : one)));
  $("plan-policy").replaceChildren(option("", "by default"), ...found.policies.map((one) => option(one)));
  if (found.workloads.includes("snake")) $("plan-workload").value = "snake";
  filled = true;
}

function typed() {
  const fields = new FormData($("plan-form"));
  const given = { workload: fields.get("workload"), machine: fields.get("machine"), policy: fields.get("policy"), procs: fields.get("procs") };
  for (const name of ["learner_memory", "actor_memory"]) given[name] = Number(fields.get(name)) ? `${fields.get(name)}MiB` : "";
  given.grow = $("plan-grow").checked ? "" : "no";
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value));
}

function command(given) {
  const options = { procs: "--procs", machine: "--machine", policy: "--policy", learner_memory: "--learner-memory", actor_memory: "--actor-memory" };
  const parts = Object.entries(options).filter(([name]) => given[name] && given[name] !== "here").map(([name, flag]) => `${flag} ${given[name]}`);
  return ["gpusched plan", given.workload === "snake" ? "" : `--workload ${given.workload}`, ...parts, given.grow === "no" ? "--no-grow" : ""].filter(Boolean).join(" ");
}

function draw(found) {
  const roles = [...new Set(found.devices.flatMap((device) => device.roles.map((one) => one.role)))];
  const kept = Object.keys(KEPT).filter((name) => found.devices.some((device) => device.kept[name] > 0));
  show($("plan-counts"), `[${found.counts.join(", ")}] on ${found.host}`);
  $("plan-bars").replaceChildren(...found.devices.map((device) => {
    const parts = device.roles.flatMap((one) => Array.from({ length: one.count }, () => ({ mib: one.share, kind: `part j${roles.indexOf(one.role) % 6}`, text: `${one.role}: ${gib(one.share)}, of which it may allocate ${gib(one.limit)}` })));
    for (const name of Object.keys(KEPT)) if (device.kept[name] > 0) parts.push({ mib: device.kept[name], kind: KEPT[name][0], text: `${KEPT[name][1]}: ${gib(device.kept[name])}` });
    const text = device.roles.map((one) => `${one.count} ${one.role}${one.count > 1 ? "s" : ""} with ${gib(one.share)}${one.count > 1 ? " each" : ""}`).join(", ") || "nothing";
    return make("div", { class: "planned" }, make("div", { class: "top" }, make("span", { class: "name" }, `GPU ${device.label}`), make("span", {}, text)), bar(parts, device.total));
  }));
  $("plan-legend").replaceChildren(...roles.map((one, index) => legendEntry(`j${index % 6}`, one)), ...kept.map((name) => legendEntry(...KEPT[name])));
  $("plan-why").replaceChildren(...[...found.warnings.map((one) => `warning: ${one}`), ...found.why].map((one) => make("li", {}, one)));
}

async function plan() {
  const [given, number] = [typed(), ++asked];
  $("plan-procs-text").textContent = given.procs;
  for (const name of ["learner", "actor"]) $(`plan-${name}-text`).textContent = given[`${name}_memory`] ? gib(Number($(`plan-${name}`).value)) : "as the workload asks";
  $("plan-command").textContent = command(given);
  try {
    const found = await ask(at("/plan", "", given));
    if (number !== asked) return; // another one was asked for meanwhile
    show($("plan-error"), found.error ? `${found.error}. ${found.hint}` : "");
    if (!found.error) draw(found);
  } catch (error) {
    if (number === asked) show($("plan-error"), error.message);
  }
}

export async function openView() {
  try {
    if (!filled) await fill();
    await plan();
  } catch (error) {
    show($("plan-error"), error.message);
  }
}

let timer = 0;
$("plan-form").addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(plan, 60); // a slider that is moved asks once it rests
});
$("plan-form").addEventListener("submit", (event) => event.preventDefault());
