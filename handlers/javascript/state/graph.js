'use strict';

// Walks everything that variables reach, and finds what cannot be saved. It calls no getter and no method of the code.

const { captured, describe } = require('./functions.js');
const { STARTS } = require('./form.js');
const { Known } = require('./known.js');
const { isIterator, kindOf, whyNative } = require('./kinds.js');
const { Node, toSource } = require('./node.js');
const { baseOf, usualPrototype, viewOf } = require('./parts.js');

const { MODULE, NAMESPACE } = STARTS;
const EXACT = 10000; // Elements of longer arrays are read without looking for getters.
const OBJECT = 160; // Bytes that it takes to walk an object, about.
const LARGE = 1 << 20; // Bytes that get a file of their own.

const { getOwnPropertyDescriptor, getPrototypeOf, ownKeys } = Reflect;
const { isExtensible } = Object;

class Graph {
  constructor(host) {
    this.host = host;
    this.types = host.types;
    this.nodes = new Map(); // of objects and symbols
    this.list = []; // of the same nodes
    this.from = []; // what contains, and
    this.to = []; // what is contained, as numbers of nodes
    this.size = 0; // bytes, about
    this.known = null;
    this.pending = [];
  }

  /** Walks a value of a variable. */
  add(value, owner) {
    this.owner = owner;
    const node = this.reach(value);
    while (this.pending.length) this.walk(this.pending.pop());
    return node;
  }

  /** To be called when all variables were added: finds what is special, and what is lost, by what it contains. */
  finish() {
    const functions = this.list.filter(({ base }) => base === 'function');
    const open = functions.filter(({ form, lost }) => !lost && form.names.size > 0);
    if (open.length) {
      const scopes = captured(open.map(({ value }) => value), this.host);
      open.forEach((node, i) => this.close(node, scopes[i]));
    }
    this.findSelves(functions.filter(({ form, lost }) => !lost && form.usesThis));
    for (let changed = true; changed; ) {
      changed = false;
      for (let i = this.from.length - 1; i >= 0; i--) {
        const node = this.list[this.from[i]];
        const part = this.list[this.to[i]];
        if (part.special && !node.special) changed = node.special = true;
        if (!part.lost || node.lost || node.isLoose(part)) continue;
        node.lost = part.lost.inside ? part.lost : { ...part.lost, inside: kindOf(part.value, this.types) };
        changed = true;
      }
    }
  }

  /** The `this` of arrow functions, if they are fields that a class gave to its objects. */
  findSelves(arrows) {
    if (!arrows.length) return;
    const left = new Set(arrows);
    for (let i = 0; i < this.to.length; i++) {
      const node = this.list[this.from[i]];
      const part = this.list[this.to[i]];
      if (left.has(part) && this.hasField(node.value, part.form.source)) {
        left.delete(part);
        part.self = node.value;
        this.connect(part, node);
      }
    }
    for (const node of left) node.lose('it uses `this` of the function that made it');
  }

  hasField(value, source) {
    for (let at = getPrototypeOf(value); at; at = getPrototypeOf(at)) {
      const node = this.nodes.get(at);
      if (node?.base === 'prototype' && node.of.describe()?.source.includes(source)) return true;
    }
    return false;
  }

  close(node, names) {
    const used = [...node.form.names].filter((name) => names.has(name));
    if (used.length) node.lose(`it uses ${used.join(', ')} of the function that made it`);
  }

  /** The parts that functions lose without being lost themselves. */
  *missing() {
    for (let i = 0; i < this.from.length; i++) {
      const node = this.list[this.from[i]];
      const part = this.list[this.to[i]];
      if (!part.lost || node.lost || !node.isLoose(part)) continue;
      const what = ownKeys(node.value).find((key) => getOwnPropertyDescriptor(node.value, key).value === part.value);
      const name = `${node.owner}.${String(what ?? 'accessor')}`;
      yield { name, type: kindOf(part.value, this.types), reason: part.lost.reason };
    }
  }

  /** The large buffers that a node reaches. */
  buffersOf(node) {
    if (!this.parts) {
      this.parts = this.list.map(() => []);
      if (this.list.some(({ base, value }) => base === 'buffer' && value.byteLength >= LARGE)) {
        for (let i = 0; i < this.from.length; i++) this.parts[this.from[i]].push(this.to[i]);
      }
    }
    const seen = new Set([node.number]);
    const found = [];
    for (const number of seen) {
      const { base, value } = this.list[number];
      if (base === 'buffer' && value.byteLength >= LARGE) found.push(value);
      for (const part of this.parts[number]) seen.add(part);
    }
    return found;
  }

  reach(value, container) {
    const type = typeof value;
    if (type === 'string') this.size += value.length;
    if (type !== 'symbol' && type !== 'function' && (type !== 'object' || value === null)) return (this.size += 8), null;
    let node = this.nodes.get(value);
    if (!node) {
      node = new Node(value, this.list.length, this.owner);
      this.size += OBJECT;
      this.nodes.set(value, node);
      this.list.push(node);
      this.pending.push(node);
    }
    if (container) this.connect(container, node);
    return node;
  }

  connect(container, part) {
    this.from.push(container.number);
    this.to.push(part.number);
  }

  walk(node) {
    const { value } = node;
    if (node.base === 'member') return;
    if (typeof value === 'symbol') return node.be('symbol');
    if (this.types.isProxy(value)) return node.lose('what is behind a proxy cannot be read');
    if (!this.isData(value)) {
      this.known ??= new Known(this.host);
      node.path = this.known.get(value);
      if (node.path) return node.be('known');
    }
    if (typeof value === 'function') return this.walkFunction(node);
    const why = whyNative(value, this.types);
    if (why) return node.lose(why);
    const constructor = getOwnPropertyDescriptor(value, 'constructor');
    if (!constructor || constructor.enumerable || !isPrototype(constructor.value, value)) this.walkObject(node);
    else this.walkPrototype(node, constructor.value);
  }

  /** Whether a value is an ordinary one without functions, which is saved as it is, even if it belongs to a module. */
  isData(value) {
    if (typeof value === 'function' || value === this.host.process.env) return false;
    const { Array, Map, Object, Set } = this.host.prototypes;
    const prototype = getPrototypeOf(value);
    if (prototype !== Object) return prototype === Array || prototype === Map || prototype === Set;
    let hasKeys = false;
    for (const key in value) {
      if (typeof getOwnPropertyDescriptor(value, key)?.value === 'function') return false;
      hasKeys = true;
    }
    // What belongs to JavaScript itself, such as `Math`, does not list its keys.
    return hasKeys || ownKeys(value).length === 0;
  }

  walkFunction(node) {
    const { value } = node;
    const form = node.describe();
    node.be('function');
    if (!form) return node.lose('it is bound, or belongs to Node, and has no source');
    const hidden = form.privates.find(({ isStatic }) => isStatic);
    if (hidden) return node.lose(`its private ${hidden.name} cannot be read`);
    if (form.usesSuper) return node.lose('it uses `super` of the object that it was made for');
    if (form.heritage) this.reach(getPrototypeOf(value), node);
    const prototype = getOwnPropertyDescriptor(value, 'prototype')?.value;
    if (prototype && (form.isClass || !isPlainPrototype(prototype))) this.reach(prototype, node);
    for (const key of ownKeys(value)) {
      if (!isNatural(key)) this.reachProperty(node, key, node);
    }
  }

  walkPrototype(node, constructor) {
    node.be('prototype');
    node.of = this.reach(constructor, node);
    this.walkProperties(node, ownKeys(node.value).filter((key) => key !== 'constructor'));
    this.reach(getPrototypeOf(node.value), node);
  }

  /** Reaches what a property has; methods in the source of a class are made with it. */
  reachProperty(node, key, maker) {
    if (typeof key === 'symbol') this.reach(key, node);
    const property = propertyOf(node.value, key);
    for (const which of ['value', 'get', 'set']) {
      if (!(which in property)) continue;
      const part = this.reach(property[which], node);
      if (!part || typeof part.value !== 'function' || property.enumerable || !maker?.describe()?.isClass) continue;
      if (part.base === 'member' || !maker.form.source.includes(toSource(part.value))) continue;
      part.be('member');
      part.lost = null;
      part.place = { holder: node, key, which };
      this.connect(part, node);
    }
  }

  walkObject(node) {
    const { value } = node;
    const { host, types } = this;
    const prototype = getPrototypeOf(value);
    node.base = types.isArrayBuffer(value) ? 'buffer' : baseOf(value, types);
    node.usual = usualPrototype(node.base, value, host, types);
    if (prototype !== node.usual) {
      node.special = true;
      if (prototype && types.isProxy(prototype)) return node.lose('what is behind a proxy cannot be read');
      const why = this.whyForeign(node, prototype);
      if (why) return node.lose(why);
      if (prototype) this.reach(prototype, node);
    }
    if (node.base === 'error') node.special = true;
    if (!isExtensible(value)) node.special = true;
    if (node.base === 'buffer') {
      this.size += value.byteLength >= LARGE ? 0 : value.byteLength;
      if (value.byteLength >= LARGE) node.special = true;
    } else if (ArrayBuffer.isView(value)) {
      node.special = true;
      node.view = viewOf(value, host);
      this.reach(node.view.buffer, node);
    } else if (node.base === 'map') {
      for (const [key, one] of entries(value)) {
        this.reach(key, node);
        this.reach(one, node);
      }
    } else if (node.base === 'set') for (const one of elements(value)) this.reach(one, node);
    if (node.base === 'array' && value.length > EXACT) for (let i = 0; i < value.length; i++) this.reach(value[i], node);
    else if (node.base !== 'view') this.walkProperties(node, ownKeys(value));
  }

  walkProperties(node, keys) {
    const { value, base } = node;
    const isOrdinary = base === 'object' || base === 'array';
    for (let i = 0; i < keys.length; i++) {
      const key = keys[i];
      const property = getOwnPropertyDescriptor(value, key);
      if (base === 'array' && key === 'length' && property.writable || base === 'native' && isNativeKey(key)) continue;
      if (!isOrdinary || typeof key === 'symbol' || !property.writable || !property.enumerable || !property.configurable) {
        node.special = true;
        this.reachProperty(node, key, node.of);
      } else this.reach(property.value, node);
      this.size += 16;
    }
  }

  /** Why an object with this prototype cannot be made anew; undefined if it can. */
  whyForeign({ base }, prototype) {
    if (prototype) this.known ??= new Known(this.host);
    if (base === 'view') return undefined;
    for (let at = prototype; at; at = getPrototypeOf(at)) {
      if (this.types.isProxy(at)) return 'what is behind a proxy cannot be read';
      if (isIterator(at)) return 'where it is cannot be read';
      const path = this.known.get(at);
      const maker = getOwnPropertyDescriptor(at, 'constructor')?.value;
      const source = typeof maker === 'function' ? toSource(maker) : '';
      const [hidden] = (source.includes('#') && describe(source)?.privates) || [];
      if (hidden) return `its private ${hidden.name} cannot be read`;
      if (!path) continue;
      if (path[0] === MODULE && this.host.builtin.includes(path[1])) {
        if (path[1] === 'events' || base === 'error') continue;
        return `it belongs to this process: a ${path[path.length - 2]} of ${path[1]}`;
      } else if (path[0] !== MODULE && path[0] !== NAMESPACE && base === 'object' && path[1] !== 'Object') {
        return `a ${path[path.length - 2]} cannot be made anew from outside`;
      }
    }
    return undefined;
  }
}

function isPrototype(constructor, value) {
  return typeof constructor === 'function' && getOwnPropertyDescriptor(constructor, 'prototype')?.value === value;
}

/** Whether a function has it, and nothing else, from the start. */
function isPlainPrototype(prototype) {
  const keys = ownKeys(prototype);
  if (keys.length !== 1 || keys[0] !== 'constructor') return keys.length === 0;
  return !getOwnPropertyDescriptor(prototype, 'constructor').enumerable;
}

const entries = Function.prototype.call.bind(Map.prototype.entries);

const elements = Function.prototype.call.bind(Set.prototype.values);

/** A property without its getter, if that is V8's own for the stack of an error. */
function propertyOf(value, key) {
  const property = getOwnPropertyDescriptor(value, key);
  if (key !== 'stack' || !property.get || !isNative(property.get)) return property;
  return { value: value.stack, writable: true, enumerable: false, configurable: true };
}

const isNative = (value) => toSource(value).endsWith('{ [native code] }');
const isNatural = (key) => /^(length|name|prototype|arguments|caller)$/.test(typeof key === 'string' ? key : '');
const isNativeKey = (key) => key === 'lastIndex' || /^(\d+|length)$/.test(typeof key === 'string' ? key : '');

module.exports = { Graph, LARGE, isNatural, isPlainPrototype, propertyOf };
