'use strict';

// Saves the variables of a session in a folder, and opens them in another session: `import.meta.state`, which is not
// enumerable, is for the server. What does the work is loaded when it is first needed.

const fs = require('fs');
const { builtinModules } = require('module');
const { types } = require('util');
const vm = require('vm');

const { adopt, evaluate, isGlobal, variables } = require('./cell.js');
const { imported } = require('./modules.js');
const { activeKinds } = require('./pending.js');

const file = (name) => `${__dirname}/state/${name}`;
const { readFileSync } = fs;
const load = require;

const FILES = [
  'appendFileSync', 'closeSync', 'existsSync', 'openSync', 'readFileSync', 'readSync', 'renameSync', 'rmSync',
  'statfsSync', 'writeFileSync', 'writeSync',
];

/** Some functions of a module, as they are before code can replace them. */
function only(module, names) {
  const chosen = { __proto__: null };
  for (const name of names) chosen[name] = module[name];
  return chosen;
}

/** To be called before any code runs, with the `import.meta` of the code. */
function prepareState(meta, workdir) {
  // Code can replace methods of these prototypes, but not the prototypes.
  const prototypes = Object.create(null);
  for (const name of Object.getOwnPropertyNames(globalThis)) {
    const value = Object.getOwnPropertyDescriptor(globalThis, name).value;
    if (typeof value === 'function' && value.prototype) prototypes[name] = value.prototype;
  }
  prototypes.Buffer = Buffer.prototype; // a getter in some versions of Node
  const host = {
    __proto__: null,
    activeKinds, adopt, evaluate, imported, isGlobal, load, meta, process, prototypes, variables, workdir,
    builtin: builtinModules,
    cache: load('module')._cache,
    cwd: process.cwd.bind(process),
    environment: { ...process.env },
    fs: only(fs, FILES),
    global: globalThis,
    handler: `${__dirname}/`,
    rss: process.memoryUsage.rss,
    types: { ...types },
    get v8() {
      return load('v8'); // It takes milliseconds.
    },
  };
  const state = {
    save: (folder) => pristine()('save.js').save(host, folder),
    open: (folder) => load(file('open.js')).open(host, folder),
    subjects: null, // functions that state/functions.js asks about
  };
  Object.defineProperty(meta, 'state', { value: state });
}

let loader = null;

/** Loads files where nothing is as code may have changed it: in a context of their own. */
function pristine() {
  if (loader) return loader;
  const context = vm.createContext();
  const loaded = Object.create(null);
  const require = (name) => {
    if (name.startsWith('./')) return loader(name.slice(2));
    return load(name.startsWith('../') ? `${__dirname}/${name.slice(3)}` : name);
  };
  loader = (name) => {
    if (!loaded[name]) {
      const module = { exports: {} };
      const run = vm.compileFunction(readFileSync(file(name), 'utf8'), ['require', 'module'], {
        filename: file(name),
        parsingContext: context,
      });
      run(require, module);
      loaded[name] = module.exports;
    }
    return loaded[name];
  };
  return loader;
}

module.exports = { prepareState };
