// Which view is open: the address after # has it, so that back, reload and links work.
import { $, jobOf } from "/draw.js";
import * as doctor from "/doctor.js";
import * as job from "/job.js";
import * as plan from "/plan.js";
import * as status from "/status.js";

const VIEWS = { status, job, plan, doctor };
let current = null;

function route() {
  const [, name] = /^#\/(\w*)/.exec(location.hash) ?? [];
  const view = Object.hasOwn(VIEWS, name ?? "") && name !== "status" ? name : "status";
  if (current !== null) VIEWS[current].closeView?.();
  for (const one of Object.keys(VIEWS)) $(`${one}-view`).hidden = one !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  $("done").hidden = true;
  if (current !== null) scrollTo(0, 0);
  current = view;
  VIEWS[view].openView(...jobOf(location.hash));
}

// A browser opens six connections to one server, for all its tabs: one that is hidden leaves its own to the others.
function attend() {
  for (const view of [status, ...(current === "job" ? [job] : [])]) if (document.hidden) view.pause(); else view.resume();
}

addEventListener("hashchange", route);
addEventListener("visibilitychange", attend, true);
route();
attend();
