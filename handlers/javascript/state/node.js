'use strict';

// An object, function or symbol that variables reach, and what is known about it.

const { describe } = require('./functions.js');

const { getPrototypeOf } = Reflect;
const toSource = Function.prototype.call.bind(Function.prototype.toString);

class Node {
  constructor(value, number, owner) {
    this.value = value;
    this.number = number;
    this.owner = owner; // the variable through which it was found
    this.base = 'object'; // how it is made
    this.special = false; // whether v8.serialize does not keep it as it is, or what it contains
    this.lost = null; // { reason, inside }
  }

  /** What the source of a function says. */
  describe() {
    return (this.form ??= describe(toSource(this.value)));
  }

  be(base) {
    this.base = base;
    this.special = true;
  }

  lose(reason) {
    this.lost ??= { reason, inside: null };
  }

  /** Whether it can be saved without this part: a function without a property, a prototype without a method. */
  isLoose(part) {
    if (this.base === 'function') return part.value !== getPrototypeOf(this.value) && part.base !== 'prototype';
    return this.base === 'prototype' && part !== this.of;
  }
}

// Most nodes have none of these, and there may be a million nodes.
Object.assign(Node.prototype, {
  form: null, // what the source of a function says
  path: null, // of something known
  self: null, // the `this` of an arrow function
  of: null, // the function whose prototype it is
  place: null, // of a method in the source of a class
  view: null, // of a buffer
  usual: null, // the prototype that it has if nobody changed it
  shell: null, // stands for it in what is saved
});

module.exports = { Node, toSource };
