'use strict';

// Saves variables: what v8.serialize keeps as it is, and a record for everything else that they reach.

const { Graph } = require('./graph.js');
const { kindOf } = require('./kinds.js');
const { Records } = require('./records.js');
const { Report } = require('./report.js');

const SPARE = 16 << 20; // Bytes of memory that saving leaves free.

function save(host, folder) {
  const restore = removeHook(host.global.Error);
  try {
    saveAll(host, folder);
  } finally {
    restore();
  }
}

/** Without it, reading the stack of an error runs no code; it may never end. */
function removeHook(Error) {
  const hook = Reflect.getOwnPropertyDescriptor(Error, 'prepareStackTrace');
  if (!hook?.configurable) return () => {};
  delete Error.prepareStackTrace;
  return () => Reflect.defineProperty(Error, 'prepareStackTrace', hook);
}

function saveAll(host, folder) {
  const report = new Report(host, folder);
  const room = new Room(host, folder);
  const graph = new Graph(host);
  const roots = [];
  for (const root of list(host, report)) {
    const before = graph.size;
    const node = graph.add(root.value, root.name);
    // Serialized, it takes as much again, and V8 enlarges its memory by copying.
    if (room.has(2 * (graph.size - before))) roots.push({ ...root, node });
    else lose(report, root, host, room.reason(graph.size - before));
  }
  graph.finish();
  let kept = roots.filter((root) => !explain(report, root, host));
  for (const { name, type, reason } of graph.missing()) report.lose(name, type, reason);
  const records = new Records(host, graph, folder, room);
  kept = kept.filter((root) => records.canHold(root, (reason) => lose(report, root, host, reason)));
  kept = write(host, folder, records, kept, report);
  for (const kind of host.activeKinds()) report.lose('(running)', kind, 'it goes on in the session only');
  report.write(kept.length);
}

/** The variables, and the properties that code gave to the global object. */
function list({ global, isGlobal, variables }, report) {
  const roots = variables();
  for (const key of Reflect.ownKeys(global)) {
    if (typeof key === 'symbol' || isGlobal(key)) continue;
    const property = Reflect.getOwnPropertyDescriptor(global, key);
    if (!('value' in property)) report.lose(`globalThis.${key}`, 'accessor', 'its value is computed');
    else roots.push({ name: key, spelling: null, constant: false, value: property.value });
  }
  return roots;
}

function lose(report, { name, value }, { types }, reason) {
  report.lose(name, kindOf(value, types), reason);
}

function explain(report, root, host) {
  const lost = root.node?.lost;
  if (!lost) return false;
  const { inside, reason } = lost;
  lose(report, root, host, inside ? `it contains a value of the type ${inside}: ${reason}` : reason);
  return true;
}

/** Writes everything in one piece; if V8 refuses, without the variables that it refuses. */
function write(host, folder, records, roots, report) {
  const { fs, v8 } = host;
  const whole = (kept) => v8.serialize({ ...records.of(kept), ...modes(host), node: host.process.version });
  let bytes;
  try {
    bytes = whole(roots);
  } catch {
    roots = roots.filter((root) => {
      try {
        v8.serialize(records.of([root]));
        return true;
      } catch (error) {
        lose(report, root, host, String(error.message));
        return false;
      }
    });
    bytes = whole(roots);
  }
  try {
    // Linux ends a process that writes a file which is too large.
    if (!new Room(host, folder).has(bytes.length)) throw Object.assign(new Error(), { code: 'ENOSPC' });
    fs.writeFileSync(`${folder}/values`, bytes);
    return roots;
  } catch (error) {
    if (error.code !== 'ENOSPC') throw error;
    fs.rmSync(`${folder}/values`, { force: true });
    for (const root of roots) lose(report, root, host, `no room in the sandbox to save ${megabytes(bytes.length)} MB`);
    fs.writeFileSync(`${folder}/values`, whole([]));
    return [];
  }
}

/** The working directory and the environment variables that code changed. */
function modes({ cwd, environment, process, workdir }) {
  const changed = [];
  for (const name of new Set([...Object.keys(environment), ...Object.keys(process.env)])) {
    if (process.env[name] !== environment[name]) changed.push([name, process.env[name] ?? null]);
  }
  let folder = null;
  try {
    folder = cwd();
  } catch {
    // It was deleted.
  }
  return { environment: changed, folder: folder === workdir ? null : folder };
}

const megabytes = (bytes) => Math.max(1, Math.round(bytes / 2 ** 20));

class Room {
  constructor({ fs, process, rss }, folder) {
    const limit = Number(process.env.SANDBOX_MEMORY) || Infinity;
    const { bavail, bfree, blocks, bsize } = fs.statfsSync?.(folder) ?? { bavail: Infinity, bfree: 0, blocks: 0, bsize: 1 };
    this.left = Math.min(bavail * bsize, limit - rss() - (blocks - bfree) * bsize) - SPARE;
  }

  has(bytes) {
    if (bytes > Math.max(this.left, 1 << 16)) return false;
    this.left -= bytes;
    return true;
  }

  reason(bytes) {
    return `no room in the sandbox to save ${megabytes(bytes)} MB`;
  }
}

module.exports = { save };
