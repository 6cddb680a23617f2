// Follows an election, and takes no part: node observe.js FILE_OR_URL [SKEW [EVERY]], in seconds. See docs/record.md.
const fs = require("node:fs");
const UNITS = { ns: 1n, us: 10n ** 3n, µs: 10n ** 3n, μs: 10n ** 3n, ms: 10n ** 6n, s: 10n ** 9n, m: 60n * 10n ** 9n, h: 3600n * 10n ** 9n };
const NEEDED = { leaderelection: "whole", leader_id: "string", term_expiry: "string", term_length: "string",
  election_number: "whole", extension: "whole", incarnation: "string" };
const FIELDS = { ...NEEDED, host_port: "texts", connection_params: "string", write_id: "string", successor: "string", unsynchronized: "boolean", hold: "string", priority: "whole" };
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|[{}[\]:]/g;
const kind = (v, exact) => Array.isArray(v) && v.every((x) => typeof x === "string") ? "texts" : typeof v !== "number" ? typeof v : /^-?\d+$/.test(exact) ? "whole" : "number";
const refuse = (why) => { throw new Error(why); };
function instant(text) { // in nanoseconds since 1970
  const m = /^(\d{4}-\d\d-(\d\d)T([01]\d|2[0-3]):[0-5]\d:[0-5]\d)(?:\.(\d+))?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$/.exec(text) || refuse("no time: " + text);
  if (new Date(m[1] + "Z").getUTCDate() !== Number(m[2])) refuse("no such day: " + text); // Date takes 30 February for 2 March
  return BigInt(Date.parse(m[1] + m[5])) * 10n ** 6n + BigInt((m[4] || "").slice(0, 9).padEnd(9, "0"));
}
function duration(text) { // in nanoseconds
  const parts = [...text.matchAll(/(\d+)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)/g)], all = parts.map((p) => p[0]).join("");
  const total = parts.reduce((sum, [, n, f = "", unit]) => sum + BigInt(n + f) * UNITS[unit] / 10n ** BigInt(f.length), 0n);
  return text !== "" && all === text && total < 2n ** 63n ? total : refuse("no duration: " + text);
}
function parse(data) { // returns the record in these bytes; an error says why a reader must not go by it
  const text = data.length <= 256 << 10 ? new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data) : refuse("it is too large");
  const r = JSON.parse(text), exact = JSON.parse(text.replace(TOKEN, (t) => /^[-\d]/.test(t) ? `"${t}"` : t)); // JavaScript's own numbers end at 2^53
  let names = [], depth = 0, last = "";
  for (const [t] of text.matchAll(TOKEN)) {
    if (t === ":" && depth === 1) names.push(JSON.parse(last));
    [depth, last] = [depth + "{[".includes(t) - "}]".includes(t), t];
  }
  const known = (n) => Object.hasOwn(FIELDS, n), once = new Set(names).size === names.length && Object.keys(NEEDED).every((n) => names.includes(n));
  if (!once || r.leaderelection !== 1) refuse("it is no record of format 1, or a field is missing or given twice");
  names.every((n) => known(n) ? kind(r[n], exact[n]) === FIELDS[n] : !known(n.toUpperCase().toLowerCase())) || refuse("there is a wrong field among " + names);
  const marked = names.includes("must_understand") ? r.must_understand : [];
  if (!Array.isArray(marked) || !marked.every(known)) refuse("there are fields that must be understood, and are not: " + marked);
  if (!/^(?:[A-Za-z\d+/]{4})*(?:[A-Za-z\d+/]{2}==|[A-Za-z\d+/]{3}=)?$/.test(r.connection_params ?? "")) refuse("connection_params is no base64");
  [r.term_expiry, r.term_length, r.election_number, r.extension] = [instant(r.term_expiry), duration(r.term_length), BigInt(exact.election_number), BigInt(exact.extension)];
  const counts = [r.election_number, r.extension].every((n) => n >= 0n && n < 2n ** 63n) && (r.priority ?? 0) === ((r.priority ?? 0) | 0);
  return counts && r.leader_id !== "*" && duration(r.hold ?? "1s") > 0n ? r : refuse("a field is out of its bounds");
}
function judge(r, now, skew, unchanged) { // what a read says that began at now; unchanged: how long the term has been seen, by a monotonic clock
  if (r.election_number === 0n || r.leader_id === "") return [r.election_number === 0n ? "none" : "vacant", null];
  const drift = skew > r.term_length / 100n ? skew : r.term_length / 100n, over = r.term_expiry + skew;
  return r.unsynchronized ? [unchanged >= r.term_length + drift ? "lapsed" : "unknown", null] : [now >= over || unchanged >= r.term_length + 3n * skew ? "lapsed" : "led", over];
}
async function follow(place, skew = 1, every = 1) {
  for (let said = "", latest = [0n, 0n], term = "", since = 0n; ; await new Promise((done) => setTimeout(done, every * 1000))) {
    let line = said, now = BigInt(Date.now()) * 10n ** 6n, mono = process.hrtime.bigint();
    try {
      const a = place.includes("://") ? await fetch(place, { signal: AbortSignal.timeout(5000) }) : new Response(fs.readFileSync(place));
      const r = parse(Buffer.from(a.ok ? await a.arrayBuffer() : refuse("status " + a.status))), seen = [r.election_number, r.incarnation, r.leader_id, r.term_expiry].join("\n");
      if (r.election_number > latest[0] || (r.election_number === latest[0] && r.extension >= latest[1])) { // what is older is no news
        [latest, term, since] = [[r.election_number, r.extension], seen, seen === term ? since : process.hrtime.bigint()];
        const [state, over] = judge(r, now, BigInt(Math.round(skew * 1e9)), mono - since);
        const who = r.leader_id && ", leader " + JSON.stringify(r.leader_id), until = over ? ", until " + new Date(Number(over / 10n ** 6n)).toISOString() : "";
        line = `${state}, token ${latest[0]}${who}${until}`;
      }
    } catch (why) { line = `unknown, ${why.message}`; }
    if (line !== said) console.log(said = line);
  }
}
if (require.main === module) follow(...process.argv.slice(2));
else module.exports = { parse, judge };
