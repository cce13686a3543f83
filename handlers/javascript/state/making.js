'use strict';

// Makes the objects that records tell of: first those that others need, then what they contain.

const { importModule } = require('../modules.js');
const { FLAGS, STARTS } = require('./form.js');

const { ACCESSOR, CONFIGURABLE, ENUMERABLE, WRITABLE } = FLAGS;
const { GLOBAL, NAMESPACE } = STARTS;

const DEADLY = 'opening it ended the interpreter';
const RUNS = new Set(['known', 'function']); // what runs code when it is made
const LOOSE = new Set(['function', 'prototype']); // what can lack a property

class Making {
  constructor(host, folder, { roots, records }, steps) {
    Object.assign(this, { host, folder, records, steps });
    this.made = new Map(); // objects by their shells
    this.failed = new Map(); // reasons by shells
    this.missing = []; // what functions lack: name, type, reason
    this.kinds = new Map(records.map((record) => [record.shell, kindOf(record)]));
    this.byShell = new Map(records.map((record) => [record.shell, record]));
    this.setters = new Map(); // of variables, by the shells of their values
    for (const { value, set } of roots) {
      if (!this.byShell.has(value)) set(value);
      else if (this.setters.has(value)) this.setters.get(value).push(set);
      else this.setters.set(value, [set]);
    }
  }

  async all() {
    // Modules and symbols first: the definition of a class can use them.
    for (const record of this.records) if (record.base === 'known') await this.try(record, () => this.find(record));
    for (const record of this.records) if (record.base === 'symbol') this.try(record, () => this.make(record));
    for (const record of this.records) {
      if (!this.made.has(record.shell) && !this.failed.has(record.shell)) this.try(record, () => this.make(record));
    }
    this.spread();
    const done = this.records.filter(({ shell }) => !this.failed.has(shell));
    for (const record of done) this.fill(record);
    for (const record of done) this.addProperties(record);
    for (const { closed, shell } of done) if (closed) Object.preventExtensions(this.made.get(shell));
  }

  /** The object that a shell stands for, or the value itself. */
  value(value) {
    return this.made.has(value) ? this.made.get(value) : value;
  }

  try(record, make) {
    const { shell, base, owner } = record;
    const fail = (error) => {
      this.failed.set(shell, String(error?.message ?? error));
    };
    const keep = (value) => {
      this.made.set(shell, value);
      for (const set of this.setters.get(shell) ?? []) set(value);
    };
    if (RUNS.has(base)) {
      if (this.steps.deadly.has(owner)) return fail(DEADLY);
      this.steps.begin(owner);
    }
    try {
      const value = make();
      if (base !== 'known') return keep(value);
      return value.then(keep, fail);
    } catch (error) {
      return fail(error);
    }
  }

  async find({ path: [start, ...keys] }) {
    let value = this.host.global;
    if (start === NAMESPACE) value = await importModule(keys.shift());
    else if (start !== GLOBAL) value = this.host.global.require(keys.shift());
    for (const key of keys) value = value[key];
    if (value === undefined) throw new Error(`${keys.join('.')} is not there`);
    return value;
  }

  /** The object of a shell, made now if it is not there; an error if it cannot be made. */
  ensure(shell) {
    const record = this.byShell.get(shell);
    if (!record) return shell;
    if (!this.made.has(shell) && !this.failed.has(shell)) this.try(record, () => this.make(record));
    if (this.failed.has(shell)) throw new Error(this.failed.get(shell));
    return this.made.get(shell);
  }

  make(record) {
    const { base, proto } = record;
    if (base === 'symbol') return symbol(record);
    if (base === 'function') return this.function(record);
    if (base === 'member') return this.member(record);
    if (base === 'prototype') return this.ensure(record.of).prototype;
    const value = this.empty(record);
    if (proto !== undefined) Object.setPrototypeOf(value, this.ensure(proto));
    return value;
  }

  empty(record) {
    switch (record.base) {
      case 'array':
        return new Array(record.items.length);
      case 'map':
        return new Map();
      case 'set':
        return new Set();
      case 'error': {
        const error = new Error();
        delete error.stack;
        return error;
      }
      case 'native':
        return record.value;
      case 'buffer':
        return this.read(record);
      case 'view': {
        const Type = this.host.global[record.type];
        const buffer = this.ensure(record.buffer);
        return new Type(buffer, record.offset, record.length / (Type.BYTES_PER_ELEMENT ?? 1));
      }
      default:
        return {};
    }
  }

  read({ file, length }) {
    const { closeSync, openSync, readSync } = this.host.fs;
    const bytes = Buffer.allocUnsafeSlow(length);
    const fd = openSync(`${this.folder}/${file}`, 'r');
    try {
      for (let at = 0; at < length; ) {
        const count = readSync(fd, bytes, at, Math.min(length - at, 1 << 30));
        if (!count) throw new Error('its file is too short');
        at += count;
      }
    } finally {
      closeSync(fd);
    }
    return bytes.buffer;
  }

  function({ heritage, name, parent, place, self, text, textFor }) {
    const { evaluate } = this.host;
    let made;
    if (self) made = Reflect.apply(evaluate(`(function () { return ${text}; })`), this.ensure(self), []);
    else if (!heritage) made = evaluate(text);
    else {
      const extended = this.ensure(parent);
      made = isNamed(heritage, extended, evaluate) ? evaluate(text) : evaluate(textFor)(extended);
    }
    if (place === 'method') [made] = Object.values(made);
    else if (place !== 'value') made = Object.getOwnPropertyDescriptor(made, Object.keys(made)[0])[place];
    if (typeof name === 'string' && made.name !== name) defineProperty(made, 'name', CONFIGURABLE, [name]);
    return made;
  }

  member({ holder, key, which }) {
    return Object.getOwnPropertyDescriptor(this.ensure(holder), this.ensure(key))[which];
  }

  /** What contains something that failed has failed, too. */
  spread() {
    for (let changed = this.failed.size > 0; changed; ) {
      changed = false;
      for (const record of this.records) {
        if (this.failed.has(record.shell)) continue;
        const part = partsOf(record).find((one) => this.failed.has(one));
        if (part === undefined) continue;
        this.failed.set(record.shell, this.failed.get(part));
        changed = true;
      }
    }
  }

  fill({ base, items, proto, prototype, shell }) {
    const value = this.made.get(shell);
    if (base === 'array') for (const i in items) value[i] = this.value(items[i]);
    else if (base === 'set') for (const one of items) addTo.set(value, this.value(one));
    else if (base === 'map') {
      for (let i = 0; i < items.length; i += 2) addTo.map(value, this.value(items[i]), this.value(items[i + 1]));
    } else if (base === 'prototype' && Object.getPrototypeOf(value) !== this.value(proto)) {
      Object.setPrototypeOf(value, this.value(proto));
    }
    if (prototype && value.prototype !== this.value(prototype)) value.prototype = this.value(prototype);
  }

  addProperties({ base, owner, properties = [], shell }) {
    const value = this.made.get(shell);
    for (let i = 0; i < properties.length; ) {
      const key = this.value(properties[i]);
      const flags = properties[i + 1];
      const count = flags & ACCESSOR ? 2 : 1;
      const parts = properties.slice(i + 2, i + 2 + count);
      i += 2 + count;
      const failure = LOOSE.has(base) ? parts.find((part) => this.failed.has(part)) : undefined;
      if (failure) this.missing.push([`${owner}.${String(key)}`, this.kinds.get(failure), this.failed.get(failure)]);
      else defineProperty(value, key, flags, parts.map((part) => this.value(part)));
    }
  }
}

function defineProperty(object, key, flags, [first, second]) {
  const property = { enumerable: (flags & ENUMERABLE) > 0, configurable: (flags & CONFIGURABLE) > 0 };
  if (flags & ACCESSOR) Object.assign(property, { get: first, set: second });
  else Object.assign(property, { value: first, writable: (flags & WRITABLE) > 0 });
  Object.defineProperty(object, key, property);
}

const addTo = {
  map: Function.prototype.call.bind(Map.prototype.set),
  set: Function.prototype.call.bind(Set.prototype.add),
};

function partsOf({ base, buffer, holder, items = [], of, parent, properties = [], proto, prototype, self }) {
  return [buffer, holder, of, parent, proto, prototype, self, ...(LOOSE.has(base) ? [] : properties), ...items];
}

function isNamed(name, value, evaluate) {
  try {
    return evaluate(name) === value;
  } catch {
    return false;
  }
}

function symbol({ description, registered, wellKnown }) {
  if (wellKnown !== undefined) return Symbol[wellKnown];
  return registered === undefined ? Symbol(description) : Symbol.for(registered);
}

function kindOf({ base, path, type }) {
  if (base === 'known') return path[0];
  return { array: 'Array', map: 'Map', set: 'Set', error: 'Error', object: 'Object', view: type }[base] ?? base;
}

module.exports = { Making };
