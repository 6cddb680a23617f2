"use strict";
// Follows /events. Times left are counted from when they were said, by this
// browser's own steady clock: its wall clock need not be right.
const $ = (id) => document.getElementById(id);
let state = null, heard = 0, skew = 0, leaderships = [];

function colour(name) {
  let h = 0;
  for (const c of name) h = (h * 31 + c.codePointAt(0)) >>> 0;
  return `hsl(${(h * 137) % 360} 55% 50%)`;
}

function fact(name, value) {
  const dt = document.createElement("dt"), dd = document.createElement("dd");
  dt.textContent = name;
  dd.textContent = value;
  $("facts").append(dt, dd);
}

function show() {
  const s = state;
  $("state").textContent = { led: "leads", vacant: "vacant", lapsed: "lapsed", unknown: "unknown", none: "no election yet" }[s.state];
  $("state").className = "badge " + s.state;
  $("leader").textContent = s.state === "led" || s.state === "unknown" ? s.leader_id : s.state === "lapsed" ? "Nobody (was " + s.leader_id + ")" : "Nobody";
  document.title = { led: s.leader_id + " leads", unknown: "Unknown whether " + s.leader_id + " leads" }[s.state] || "Nobody leads";
  $("facts").replaceChildren();
  if (s.token) fact("Fencing token", s.token);
  if (s.host_port) fact("Addresses", s.host_port.join(", "));
  if (s.params) fact("Params", s.params);
  if (s.state === "led" || s.state === "unknown") fact("Extensions", s.extension);
  if (s.successor) fact(s.state === "led" ? "Asked to" : "Reserved for", s.successor === "*" ? "step down" : s.successor);
}

// tick moves the bar: what is left of the view, which ends before the term does.
function tick() {
  if (!state) return;
  const span = state.term_seconds - skew, gone = (performance.now() - heard) / 1000;
  const left = state.state === "led" ? Math.max(0, state.seconds_left - skew - gone) : 0;
  const percent = span > 0 ? Math.min(100, 100 * left / span) : 0;
  $("fill").style.width = percent + "%";
  $("fill").className = percent < 25 ? "low" : "";
  $("bar").setAttribute("aria-valuenow", Math.round(percent));
  const most = state.unsynchronized ? " s at most left of the view, unless it is extended" : " s left of the view, unless it is extended";
  $("left").textContent = state.state === "unknown" ? "whether its term still runs shows within a term: its clock is not compared" :
    state.state !== "led" ? "\u00a0" :
    left > 0 ? left.toFixed(1) + most : "the view is over; the term has not been extended";
}

function lasted(ms) {
  const s = Math.max(0, ms / 1000);
  if (s < 10) return s.toFixed(1) + " s";
  if (s < 120) return Math.round(s) + " s";
  if (s < 7200) return Math.round(s / 60) + " min";
  return (s / 3600).toFixed(1) + " h";
}

// moment is a time of day, and the day where that is another one.
function moment(t) {
  const d = new Date(t), time = d.toLocaleTimeString();
  return d.toDateString() === new Date().toDateString() ? time : d.toLocaleDateString() + " " + time;
}

function timeline() {
  const now = Date.now();
  if (!leaderships.length) return;
  const first = Date.parse(leaderships[0].from), span = Math.max(now - first, 1000);
  $("from").textContent = lasted(now - first) + " ago";
  $("timeline").replaceChildren(...leaderships.map((r) => {
    const bar = document.createElement("i");
    const from = Date.parse(r.from), to = r.to ? Date.parse(r.to) : now;
    bar.style.left = 100 * (from - first) / span + "%";
    bar.style.width = 100 * (to - from) / span + "%";
    bar.style.background = colour(r.leader_id);
    bar.title = "token " + r.token + ": " + r.leader_id;
    return bar;
  }));
  $("leaderships").replaceChildren(...leaderships.slice(-20).reverse().map((r) => {
    const row = document.createElement("tr"), key = document.createElement("span");
    const ends = { vacancy: "given up", lapse: "lapsed", superseded: "superseded" };
    for (const text of [r.token, "", moment(r.from),
      lasted((r.to ? Date.parse(r.to) : now) - Date.parse(r.from)), r.to ? ends[r.end] : "goes on"]) {
      row.insertCell().textContent = text;
    }
    key.className = "key";
    key.style.background = colour(r.leader_id);
    row.cells[1].append(key, r.leader_id);
    return row;
  }));
}

async function refresh() {
  try {
    const [r, self] = await Promise.all(["leaderships", "self"].map((p) => fetch(p).then((a) => a.json())));
    leaderships = r;
    skew = self.skew_seconds;
    $("self").textContent = self.role === "observer" ? "Shown by an observer." :
      "Shown by candidate " + self.id + ", which is " + self.status + ".";
    timeline();
  } catch { /* the next one, or the events, will tell */ }
}

function take(message) {
  state = JSON.parse(message.data);
  heard = performance.now();
  $("lost").hidden = true;
  show();
  tick();
  if (message.type !== "extension") refresh();
}

const events = new EventSource("events");
for (const kind of ["state", "elected", "vacancy", "lapse", "extension"]) events.addEventListener(kind, take);
events.onerror = () => { $("lost").hidden = false; };
setInterval(tick, 100);
setInterval(refresh, 5000);
setInterval(timeline, 1000);
