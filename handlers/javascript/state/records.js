'use strict';

// Turns what was found into what v8.serialize takes. A record tells how to make an object; in all that contains the object, an
// empty object stands for it, the shell, because v8.serialize keeps what is the same object.

const { FLAGS } = require('./form.js');
const { LARGE, isNatural, isPlainPrototype, propertyOf } = require('./graph.js');

const { getOwnPropertyDescriptor, getPrototypeOf, ownKeys } = Reflect;
const { isExtensible } = Object;

const { ACCESSOR, CONFIGURABLE, ENUMERABLE, WRITABLE } = FLAGS;
const USUAL = WRITABLE + ENUMERABLE + CONFIGURABLE;

class Records {
  constructor(host, graph, folder, room) {
    Object.assign(this, { host, graph, folder, room });
    this.files = new Map(); // of large buffers
  }

  /** Writes the large buffers of a variable; false if there is no room for them. */
  canHold({ node }, refuse) {
    for (const buffer of node ? this.graph.buffersOf(node) : []) {
      if (this.files.has(buffer)) continue;
      const name = `data-${this.files.size}`;
      try {
        if (!this.room.has(buffer.byteLength)) throw Object.assign(new Error(), { code: 'ENOSPC' });
        this.writeAll(`${this.folder}/${name}`, buffer);
      } catch (error) {
        if (error.code !== 'ENOSPC') throw error;
        this.host.fs.rmSync(`${this.folder}/${name}`, { force: true });
        refuse(this.room.reason(buffer.byteLength));
        return false;
      }
      this.files.set(buffer, name);
    }
    return true;
  }

  writeAll(path, buffer) {
    const { closeSync, openSync, writeSync } = this.host.fs;
    const fd = openSync(path, 'w');
    try {
      const bytes = new Uint8Array(buffer);
      for (let at = 0; at < bytes.length; ) at += writeSync(fd, bytes, at, Math.min(bytes.length - at, 1 << 30));
    } finally {
      closeSync(fd);
    }
  }

  /** What is saved of these variables. */
  of(roots) {
    this.made = [];
    this.waiting = [];
    for (const node of this.graph.list) if (node.shell) node.shell = null;
    const saved = roots.map(({ node, ...root }) => ({ ...root, value: this.encode(root.value) }));
    while (this.waiting.length) this.made.push(this.record(this.waiting.pop()));
    return { roots: saved, records: this.made };
  }

  encode(value) {
    const type = typeof value;
    if (type !== 'symbol' && type !== 'function' && (type !== 'object' || value === null)) return value;
    const node = this.graph.nodes.get(value);
    if (!node?.special) return value;
    if (!node.shell) {
      node.shell = {};
      this.waiting.push(node);
    }
    return node.shell;
  }

  record(node) {
    const { value, base, shell, owner } = node;
    const record = { shell, base, owner };
    if (base === 'symbol') return Object.assign(record, symbol(value));
    if (base === 'known') return Object.assign(record, { path: node.path });
    if (base === 'member') return Object.assign(record, this.member(node.place));
    if (base === 'function') this.function(record, node);
    else if (base === 'prototype') {
      record.of = this.encode(node.of.value);
      record.proto = this.encode(getPrototypeOf(value));
    } else if (getPrototypeOf(value) !== node.usual) record.proto = this.encode(getPrototypeOf(value));
    if (base === 'map') record.items = [...mapEntries(value)].flat().map((one) => this.encode(one));
    else if (base === 'set') record.items = [...setValues(value)].map((one) => this.encode(one));
    else if (base === 'buffer') {
      if (value.byteLength >= LARGE) return Object.assign(record, { file: this.files.get(value), length: value.byteLength });
      record.value = value;
      record.base = 'native';
    } else if (base === 'native') record.value = value;
    else if (base === 'view') Object.assign(record, node.view, { buffer: this.encode(node.view.buffer) });
    else if (base === 'array') this.items(record, value);
    this.properties(record, node);
    if (!isExtensible(value)) record.closed = true;
    return record;
  }

  member({ holder, key, which }) {
    return { holder: this.encode(holder.value), key: this.encode(key), which };
  }

  function(record, { value, form, self }) {
    if (self) record.self = this.encode(self);
    const { heritage, place, text, textFor } = form;
    Object.assign(record, { place, text, textFor, name: propertyOf(value, 'name')?.value });
    if (heritage) Object.assign(record, { heritage, parent: this.encode(getPrototypeOf(value)) });
    const prototype = getOwnPropertyDescriptor(value, 'prototype')?.value;
    if (prototype && (form.isClass || !isPlainPrototype(prototype))) record.prototype = this.encode(prototype);
  }

  /** The elements of an array, with its holes. */
  items(record, value) {
    record.items = new Array(value.length);
    for (let i = 0; i < value.length; i++) {
      const property = getOwnPropertyDescriptor(value, i);
      if (property && 'value' in property) record.items[i] = this.encode(property.value);
    }
  }

  properties(record, node) {
    const { value, base } = node;
    if (base === 'view' || (base === 'array' && value.length > 10000)) return;
    record.properties = [];
    for (const key of ownKeys(value)) {
      if (base === 'function' ? isNatural(key) : base === 'prototype' ? key === 'constructor' : false) continue;
      if (base === 'native' && (key === 'length' || /^\d+$/.test(String(key)))) continue;
      const property = propertyOf(value, key);
      const { writable, enumerable, configurable } = property;
      const flags = (writable ? WRITABLE : 0) + (enumerable ? ENUMERABLE : 0) + (configurable ? CONFIGURABLE : 0);
      if (base === 'array' && (flags === USUAL || key === 'length')) continue;
      const parts = 'value' in property ? [property.value] : [property.get, property.set];
      if (parts.some((part) => this.isLeftOut(part, node, key))) continue;
      record.properties.push(this.encode(key), parts.length === 1 ? flags : flags + ACCESSOR);
      for (const part of parts) record.properties.push(this.encode(part));
    }
  }

  isLeftOut(part, container, key) {
    const node = this.graph.nodes.get(part);
    if (!node) return false;
    if (node.base === 'member' && node.place.holder === container && node.place.key === key) return true;
    return node.lost && container.isLoose(node);
  }
}

const WELL_KNOWN = new Map();
for (const key of ownKeys(Symbol)) if (typeof Symbol[key] === 'symbol') WELL_KNOWN.set(Symbol[key], key);
const description = Function.prototype.call.bind(getOwnPropertyDescriptor(Symbol.prototype, 'description').get);

function symbol(value) {
  return { wellKnown: WELL_KNOWN.get(value), registered: Symbol.keyFor(value), description: description(value) };
}

const mapEntries = Function.prototype.call.bind(Map.prototype.entries);
const setValues = Function.prototype.call.bind(Set.prototype.values);

module.exports = { Records };
