// What is wrong with the host, as `gpusched doctor` finds it.
import { $, ask, at, make, show } from "/draw.js";

const STATES = ["error", "warning", "ok"];

async function check() {
  show($("doctor-status"), "It takes some seconds.");
  $("doctor-again").disabled = true;
  try {
    const found = await ask(at("/doctor"));
    const sorted = found.findings.toSorted((one, other) => STATES.indexOf(one.state) - STATES.indexOf(other.state));
    $("findings").replaceChildren(...sorted.map((one) =>
      make("li", { class: one.state }, make("strong", {}, `${one.state}: ${one.check}`), make("span", { class: "found" }, one.found), one.fix ? make("span", { class: "why" }, one.fix) : null)));
    const counts = STATES.map((state) => [found.findings.filter((one) => one.state === state).length, state]);
    show($("doctor-status"), `gpusched ${found.version} on ${found.host}: ${counts.map(([count, state]) => `${count} ${state}${count === 1 || state === "ok" ? "" : "s"}`).join(", ")}`);
  } catch (error) {
    show($("doctor-status"), error.message);
  }
  $("doctor-again").disabled = false;
}

export function openView() {
  check();
}

$("doctor-again").addEventListener("click", check);
