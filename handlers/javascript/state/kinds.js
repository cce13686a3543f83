'use strict';

// The names of kinds of values, and why values of some kinds cannot be saved.

const { getOwnPropertyDescriptor, getPrototypeOf } = Reflect;

const NATIVE = [
  ['isPromise', 'Promise', 'a promise belongs to work of this interpreter'],
  ['isWeakMap', 'WeakMap', 'its contents cannot be listed'],
  ['isWeakSet', 'WeakSet', 'its contents cannot be listed'],
  ['isGeneratorObject', 'Generator', 'where it is in its function cannot be read'],
  ['isMapIterator', 'Map Iterator', 'where it is cannot be read'],
  ['isSetIterator', 'Set Iterator', 'where it is cannot be read'],
  ['isModuleNamespaceObject', 'Module', 'it was not imported by the code'],
  ['isArgumentsObject', 'Arguments', 'it belongs to a call'],
  ['isSharedArrayBuffer', 'SharedArrayBuffer', 'its memory is shared with other threads'],
  ['isExternal', 'External', 'it is memory of this process'],
];

/** Why a value that no code can make anew is lost; undefined if it is another one. */
function whyNative(value, types) {
  for (let i = 0; i < NATIVE.length; i++) if (types[NATIVE[i][0]]?.(value)) return NATIVE[i][2];
  return undefined;
}

/** The tag of the prototype of iterators that belong to JavaScript. */
function tagOf(prototype) {
  const tag = getOwnPropertyDescriptor(prototype, Symbol.toStringTag)?.value;
  return typeof tag === 'string' ? tag : '';
}

const isIterator = (prototype) => / Iterator$/.test(tagOf(prototype));

/** The name of the type of a value, without calling anything of it. */
function kindOf(value, types) {
  if (value === null) return 'null';
  if (typeof value === 'function') return types.isProxy(value) ? 'Proxy' : 'function';
  if (typeof value !== 'object') return typeof value;
  if (types.isProxy(value)) return 'Proxy';
  for (let at = value; at && !types.isProxy(at); at = getPrototypeOf(at)) {
    const maker = getOwnPropertyDescriptor(at, 'constructor')?.value;
    const name = typeof maker === 'function' && !types.isProxy(maker) && getOwnPropertyDescriptor(maker, 'name')?.value;
    if (typeof name === 'string' && name && name !== 'Object') return name;
    if (isIterator(at)) return tagOf(at);
  }
  return NATIVE.find(([test]) => types[test]?.(value))?.[1] ?? 'Object';
}

module.exports = { isIterator, kindOf, whyNative };
