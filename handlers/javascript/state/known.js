'use strict';

// Finds what code did not make itself: the globals of JavaScript and Node, modules, and what these have inside. Such a value
// is saved as a path: where it begins, and the keys that lead to it.

const { STARTS } = require('./form.js');

const { GLOBAL, MODULE, NAMESPACE } = STARTS;

const UNWANTED = /^_|^internal\/|^(punycode|sys|trace_events|wasi)$/; // Node warns about some of them.

class Known {
  constructor(host) {
    this.host = host;
    this.paths = new Map();
    const { global, prototypes } = host;
    for (const name in prototypes) this.add(prototypes[name], [GLOBAL, name, 'prototype']);
    this.add(global, [GLOBAL]);
    for (const [name, value] of members(global)) if (host.isGlobal(name)) this.addDeep(value, [GLOBAL, name], true);
    this.add(host.process.env, [GLOBAL, 'process', 'env']);
    this.addLibraries();
    this.addBuiltin();
  }

  /** The path of a value; undefined if it is none of these. */
  get(value) {
    return this.paths.get(value);
  }

  add(value, path) {
    if (isObject(value) && !this.paths.has(value)) this.paths.set(value, path);
  }

  /** Adds a value, its members, and the prototypes of both. `whole`: also members that are nothing but data. */
  addDeep(value, path, whole) {
    if (!isObject(value) || this.host.types.isProxy(value) || this.paths.has(value)) return;
    this.add(value, path);
    for (const [key, member] of members(value)) {
      if (!isObject(member) || this.host.types.isProxy(member)) continue;
      if (!whole && typeof member !== 'function' && !hasFunctions(member)) continue;
      const here = [...path, key];
      this.add(member, here);
      if (key !== 'prototype' && typeof member !== 'function') continue;
      for (const [name, inner] of members(member)) {
        if (key === 'prototype' ? typeof inner === 'function' : name === 'prototype') this.add(inner, [...here, name]);
      }
    }
  }

  addBuiltin() {
    const { builtin, load, process } = this.host;
    const loaded = new Set(process.moduleLoadList);
    for (const name of builtin) {
      if (UNWANTED.test(name)) continue;
      if (!loaded.has(`NativeModule ${name}`) && !loaded.has(`NativeModule internal/${name}`)) continue; // as fs/promises
      this.addDeep(load(name), [MODULE, name], false);
    }
  }

  /** Modules that code loaded, apart from those that are only data, which is saved by its value. */
  addLibraries() {
    const { cache, handler, imported, meta } = this.host;
    for (const [filename, module] of members(cache)) {
      const { exports } = module;
      if (filename.startsWith(handler) || !isObject(exports) || !hasFunctions(exports)) continue;
      this.addDeep(exports, [MODULE, nameOf(filename, meta.require)], false);
    }
    for (const [namespace, name] of imported) {
      this.add(namespace, [NAMESPACE, name]);
      for (const key of Reflect.ownKeys(namespace)) {
        const value = memberOf(namespace, key);
        if (typeof value === 'function') this.addDeep(value, [NAMESPACE, name, key], false);
      }
    }
  }
}

/** What to require to get the module in a file: its name, if that is enough. */
function nameOf(filename, require) {
  const [, inside] = /.*\/node_modules\/(.+)$/.exec(filename) ?? [];
  if (!inside) return filename;
  const parts = inside.split('/');
  const names = [parts.slice(0, inside[0] === '@' ? 2 : 1).join('/'), inside, inside.replace(/\.\w+$/, '')];
  for (const name of names) {
    try {
      if (require.resolve(name) === filename) return name;
    } catch {
      // The library does not offer it.
    }
  }
  return filename;
}

function isObject(value) {
  return typeof value === 'function' || (typeof value === 'object' && value !== null);
}

/** The keys and values of properties that are no accessors. */
function members(value) {
  const found = [];
  for (const key of Reflect.ownKeys(value)) {
    const property = Reflect.getOwnPropertyDescriptor(value, key);
    if (property && 'value' in property && typeof key === 'string') found.push([key, property.value]);
  }
  return found;
}

/** An export, which has no value while its module still runs. */
function memberOf(namespace, key) {
  try {
    return namespace[key];
  } catch {
    return undefined;
  }
}

function hasFunctions(value) {
  return typeof value === 'function' || members(value).some(([, member]) => typeof member === 'function');
}

module.exports = { Known };
