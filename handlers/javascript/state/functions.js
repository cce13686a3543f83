'use strict';

// What the source of a function says about it, and which variables of other functions it uses: V8 tells its inspector.

const { Session } = require('inspector');
const acorn = require('internal/deps/acorn/acorn/dist/acorn');
const { Survey } = require('../scope.js');

const SYNTAX = { ecmaVersion: 'latest', allowAwaitOutsideFunction: true, allowSuperOutsideMethod: true };
const NATIVE = /\{\s*\[native code\]\s*\}$/;
const HERITAGE = 'heritage$';

/** Describes a function by its source; null if it has none. */
function describe(source) {
  if (NATIVE.test(source)) return null;
  for (const [kind, before, after] of [['value', '(', ')'], ['method', '({', '})']]) {
    try {
      const program = acorn.parse(before + source + after, SYNTAX);
      const [{ expression }] = program.body;
      const node = kind === 'value' ? expression : expression.properties[0];
      if (kind === 'value' && !/Function|Class/.test(node.type)) continue;
      return describeNode(kind, node, program, source, before.length);
    } catch {
      // It is the other kind, or syntax that the parser does not know.
    }
  }
  return null;
}

function describeNode(kind, node, program, source, shift) {
  const { uses } = new Survey(program);
  const found = {
    place: kind === 'value' ? 'value' : node.kind === 'init' ? 'method' : node.kind, // of the result of `text`
    source,
    text: kind === 'value' ? `(${source})` : `({${source}})`,
    isClass: node.type === 'ClassExpression',
    isArrow: node.type === 'ArrowFunctionExpression',
    names: new Set(uses.map((use) => use.node.name)), // that it uses and does not declare
    privates: [],
    heritage: null, // the name of what it extends
    textFor: null, // makes the class for what it extends
    usesThis: false, // that of the code around it
    usesSuper: false,
  };
  if (found.isArrow) found.usesThis = [node.body, ...node.params].some((one) => mentions(one, 'ThisExpression'));
  if (!found.isClass) found.usesSuper = mentions(node, 'Super');
  if (kind === 'method' && (node.computed || source[node.key.start - shift] === '#')) {
    // The key has no meaning here: the function has its name as a property.
    const { start, end } = node.key;
    let [from, to] = [start - shift, end - shift];
    if (node.computed) [from, to] = [source.lastIndexOf('[', from), source.indexOf(']', to) + 1];
    found.text = `({${source.slice(0, from)}method${source.slice(to)}})`;
  }
  if (found.isClass) describeClass(found, node, source, shift);
  return found;
}

/** A class is made anew without what runs when it is defined: its static values are saved, and so is what it extends. */
function describeClass(found, { body, superClass }, source, shift) {
  let text = source;
  const blank = (start, end, by = '') => {
    const spaces = text.slice(start - shift, end - shift).replace(/[^\n\r]/g, ' ');
    text = text.slice(0, start - shift) + by.padEnd(spaces.length).slice(0, spaces.length) + text.slice(end - shift);
  };
  for (const node of body.body) {
    if (node.key?.type === 'PrivateIdentifier') found.privates.push({ name: `#${node.key.name}`, isStatic: node.static });
    else if (node.type === 'StaticBlock' || (node.static && node.type === 'PropertyDefinition')) blank(node.start, node.end);
  }
  found.text = `(${text})`;
  if (!superClass) return;
  found.heritage = superClass.type === 'Identifier' ? superClass.name : HERITAGE;
  const rest = text.slice(superClass.end - shift);
  found.textFor = `((${HERITAGE}) => (${text.slice(0, superClass.start - shift)}${HERITAGE}${rest}))`;
}

/** Whether a part of a function has such a node outside of functions that have their own `this`. */
function mentions(node, type) {
  if (node.type === type) return true;
  for (const [key, value] of Object.entries(node)) {
    for (const child of Array.isArray(value) ? value : [value]) {
      if (!child?.type || /^(FunctionExpression|FunctionDeclaration|Class\w+)$/.test(child.type) && key !== 'value') continue;
      if (mentions(child, type)) return true;
    }
  }
  return false;
}

// An array with methods that code has not changed.
const copy = Function.prototype.call.bind(Array.prototype.slice);

/** For each function, the names of the variables that V8 keeps for it besides those of scripts. */
function captured(functions, { meta }) {
  meta.state.subjects = functions;
  const session = new Session();
  session.connect();
  const post = (method, parameters) => {
    let answer;
    session.post(method, parameters, (error, result) => (answer = error ? {} : result));
    return answer;
  };
  const look = (objectId, part = 'result') => copy(post('Runtime.getProperties', { objectId, ownProperties: true })[part]);
  try {
    const { objectId } = post('Runtime.evaluate', { expression: 'meta$.state.subjects' }).result;
    const all = look(objectId).filter(({ name }) => /^\d+$/.test(name));
    return all.map(({ value }) => {
      const scopes = look(value.objectId, 'internalProperties').find(({ name }) => name === '[[Scopes]]');
      const inner = look(scopes.value.objectId).filter(({ value }) => !/^(Global|Script)/.test(value.description));
      return new Set(inner.flatMap(({ value }) => look(value.objectId).map(({ name }) => name)));
    });
  } finally {
    meta.state.subjects = null;
    session.disconnect();
  }
}

module.exports = { HERITAGE, captured, describe };
