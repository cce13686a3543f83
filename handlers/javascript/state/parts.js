'use strict';

// What an object is inside, whatever its prototype says.

const { getOwnPropertyDescriptor, getPrototypeOf } = Reflect;

function baseOf(value, types) {
  if (Array.isArray(value)) return 'array';
  if (types.isMap(value)) return 'map';
  if (types.isSet(value)) return 'set';
  if (types.isNativeError(value)) return 'error';
  if (ArrayBuffer.isView(value)) return 'view';
  return types.isDate(value) || types.isRegExp(value) || types.isBoxedPrimitive(value) ? 'native' : 'object';
}

const USUAL = { array: 'Array', map: 'Map', set: 'Set', error: 'Error', buffer: 'ArrayBuffer', object: 'Object' };
const BOXES = ['Number', 'String', 'Boolean', 'BigInt', 'Symbol'];

/** The prototype that v8.deserialize gives, or that of the empty object of this kind. */
function usualPrototype(base, value, { prototypes }, types) {
  if (base === 'view') return prototypes[viewName(value)];
  if (base !== 'native') return prototypes[USUAL[base]];
  if (types.isDate(value)) return prototypes.Date;
  return types.isRegExp(value) ? prototypes.RegExp : prototypes[BOXES.find((name) => types[`is${name}Object`](value))];
}

const getter = (prototype, key) => Function.prototype.call.bind(getOwnPropertyDescriptor(prototype, key).get);
const array = getPrototypeOf(Uint8Array.prototype);
const tag = getter(array, Symbol.toStringTag);
const PARTS = ['buffer', 'byteOffset', 'byteLength'];
const ofArray = PARTS.map((key) => getter(array, key));
const ofView = PARTS.map((key) => getter(DataView.prototype, key));

const viewName = (value) => tag(value) ?? 'DataView';

/** A view of a buffer. A small Buffer shares its memory with others; then it gets memory of its own. */
function viewOf(value, { prototypes }) {
  const type = viewName(value);
  const [buffer, offset, length] = (type === 'DataView' ? ofView : ofArray).map((get) => get(value));
  const isPooled = getPrototypeOf(value) === prototypes.Buffer && buffer.byteLength <= 1 << 16;
  return { type, length, offset: isPooled ? 0 : offset, buffer: isPooled ? buffer.slice(offset, offset + length) : buffer };
}

module.exports = { baseOf, usualPrototype, viewOf };
