// Has docs/record/observe.js read the vectors that come in, one a line, and answers with a line for each.
const path = require("node:path");
const readline = require("node:readline");
const { parse, judge } = require(path.resolve(process.argv[2], "observe.js"));

function answer(v) {
  let r;
  try {
    r = parse(Buffer.from(v.data, "base64"));
  } catch (why) {
    return { error: why.message };
  }
  const entry = { leader_id: r.leader_id, incarnation: r.incarnation };
  for (const name of ["term_expiry", "term_length", "election_number", "extension"]) entry[name] = String(r[name]);
  Object.assign(entry, { unsynchronized: r.unsynchronized ?? false, successor: r.successor ?? "", priority: r.priority ?? 0 });
  const [state, until] = judge(r, BigInt(v.now), BigInt(v.skew), BigInt(v.unchanged));
  return { entry, state, until: until === null ? "" : String(until) };
}

readline.createInterface({ input: process.stdin }).on("line", (line) => console.log(JSON.stringify(answer(JSON.parse(line)))));
