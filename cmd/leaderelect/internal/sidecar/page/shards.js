"use strict";
// Follows /events, and reads /shards when there is news.
const $ = (id) => document.getElementById(id);
let due = null;

function colour(name) {
  let h = 0;
  for (const c of name) h = (h * 31 + c.codePointAt(0)) >>> 0;
  return `hsl(${(h * 137) % 360} 55% 50%)`;
}

function row(cells, owner) {
  const tr = document.createElement("tr");
  for (const c of cells) {
    const td = document.createElement("td");
    td.textContent = c;
    tr.append(td);
  }
  tr.firstChild.style.borderLeft = "0.6em solid " + colour(owner);
  return tr;
}

function show(s) {
  $("shards").textContent = s.version ? `${s.shards} shards` : "No assignment yet";
  document.title = s.unowned ? `${s.unowned} unowned` : `${s.shards} shards`;
  $("summary").textContent = s.version ? `version ${s.version}: ${s.owned} owned, ${s.unowned} unowned, ${s.moving} moving` : "\u00a0";
  $("members").replaceChildren(...s.members.map((m) => row(
    [m.id + (m.drained ? " (draining)" : ""), m.owned, m.moving, m.seat, m.session, (m.host_port || []).join(", ")], m.id)));
  $("map").replaceChildren(...s.assignment.map((one) => {
    const cell = document.createElement("span");
    cell.title = `${one.shard}: ${one.owner || "nobody"}, token ${one.token}${one.moving ? ", moving" : ""}`;
    cell.className = one.moving ? "moving" : "";
    if (one.owner) cell.style.background = colour(one.owner);
    return cell;
  }));
}

async function read() {
  due = null;
  try {
    show(await (await fetch("shards")).json());
    const self = await (await fetch("self")).json();
    $("self").textContent = self.role === "member" ? `This sidecar is ${self.id}, and owns ${self.owned.length} shards.` : "This sidecar observes.";
  } catch { /* the events say that the connection is lost */ }
}

function soon() { due = due || setTimeout(read, 200); }

const events = new EventSource("events");
for (const kind of ["state", "owned", "moving", "unowned", "removed", "joined", "left"]) events.addEventListener(kind, soon);
events.onopen = () => { $("lost").hidden = true; soon(); };
events.onerror = () => { $("lost").hidden = false; };
