'use strict';

// Makes `require` and `import()` work as if the code were a file in the working directory. `require` finds the installed
// libraries through NODE_PATH. `import()` ignores NODE_PATH, so it is tried again from each folder there.

const { existsSync } = require('fs');
const Module = require('module');
const { dirname, join } = require('path');
const { pathToFileURL } = require('url');

const others = (process.env.NODE_PATH ?? '').split(':').filter(Boolean).map(dirname);
const cwd = process.cwd.bind(process);
const { apply } = Reflect;

function moduleIn(folder) {
  const filename = join(folder, '[code]');
  const module = new Module(filename);
  module.filename = filename;
  module.paths = Module._nodeModulePaths(folder);
  return module;
}

const importers = Object.create(null);
const imported = new Map(); // the names that code imported, by their namespaces

/** The `import()` of a module in the folder. */
function importerIn(folder) {
  if (!importers[folder]) {
    const module = moduleIn(folder);
    module._compile('module.exports = (name, options) => import(name, options)', module.filename);
    importers[folder] = module.exports;
  }
  return importers[folder];
}

async function importModule(name, script, attributes) {
  const options = attributes && Object.keys(attributes).length ? { with: attributes } : undefined;
  try {
    return keep(name, await importerIn(cwd())(name, options));
  } catch (error) {
    if (error.code !== 'ERR_MODULE_NOT_FOUND') throw error;
    // The name of the library; undefined for a path or an address.
    const [library] = /^(@[^/]+\/)?[^./:][^/:]*(?=\/|$)/.exec(name) ?? [];
    const folder = library && others.find((other) => existsSync(join(other, 'node_modules', library)));
    if (!folder) throw error;
    return keep(name, await importerIn(folder)(name, options));
  }
}

const { get, set } = Map.prototype;

function keep(name, namespace) {
  if (!apply(get, imported, [namespace])) apply(set, imported, [namespace, name]);
  return namespace;
}

/** Gives the code the names that a CommonJS file has; returns the `import.meta` of a module in its place. */
function defineModuleGlobals(folder) {
  const module = moduleIn(folder);
  const { filename } = module;
  const require = Module.createRequire(filename);
  require.main = module; // So that the code after `if (require.main === module)` runs.
  process.argv[1] = filename; // As above: modules compare it with `import.meta`.
  Object.assign(globalThis, { require, module, exports: module.exports, __filename: filename, __dirname: folder });
  const url = pathToFileURL(filename).href;
  const resolve = (name) => {
    if (/^\.{0,2}\//.test(name) || URL.canParse(name)) return new URL(name, url).href;
    return Module.isBuiltin(name) ? `node:${name}` : pathToFileURL(require.resolve(name)).href;
  };
  return { __proto__: null, dirname: folder, filename, main: true, resolve, url };
}

module.exports = { defineModuleGlobals, imported, importModule };
