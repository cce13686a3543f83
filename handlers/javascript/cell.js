'use strict';

// Turns the code of one run into a script. Later runs can use its declarations and repeat them.
//
// Top-level `const`, `let` and `class` become `var`, on the same lines. Code that awaits or imports at the top level runs
// inside an async function, and its declarations move in front of that function.

const vm = require('vm');
const acorn = require('internal/deps/acorn/acorn/dist/acorn');
const { importModule } = require('./modules.js');

const SYNTAX = {
  ecmaVersion: 'latest',
  allowAwaitOutsideFunction: true,
  allowImportExportEverywhere: true,
};
const OPEN = '(async () => {';
const CLOSE = '\n})()';

const { Script } = vm;

function compile(code, filename) {
  let cell;
  try {
    cell = transform(code);
  } catch {
    // Node reports the mistake itself, or accepts syntax that the parser does not know. Or earlier code broke the parser.
    return { script: compileAsIs(code, filename), hasValue: true };
  }
  return { script: script(cell.text, filename, cell.shift), hasValue: cell.hasValue };
}

function script(text, filename, shift = 0) {
  return new Script(text, { filename, columnOffset: -shift, importModuleDynamically: importModule });
}

function compileAsIs(code, filename) {
  try {
    return script(code, filename);
  } catch (error) {
    // A top-level `await` is not the mistake: it is allowed here. Compiled like this, the code shows the real one.
    if (/\bawait\b/.test(error.message)) script(OPEN + code + CLOSE, filename, OPEN.length);
    throw error;
  }
}

function transform(code) {
  const program = acorn.parse(code, SYNTAX);
  const { body } = program;
  const last = body[body.length - 1];
  const hasValue = last !== undefined && last.type === 'ExpressionStatement';
  const found = survey(program);
  const edits = new Edits(code);
  if (!found.waits) {
    for (const node of body) {
      if (node.type === 'VariableDeclaration') loosen(node, edits);
      else if (node.type === 'ClassDeclaration') nameClass(node, edits, 'var ');
    }
    return { text: edits.apply(), shift: 0, hasValue };
  }
  const names = [];
  let functions = '';
  for (const node of body) {
    if (node.type === 'VariableDeclaration' && node.kind !== 'var') assign(node, edits, names);
    else if (node.type === 'ClassDeclaration') {
      names.push(node.id.name);
      nameClass(node, edits, '');
    } else if (node.type === 'FunctionDeclaration') functions += `this.${node.id.name} = ${node.id.name};`;
    else if (node.type === 'ImportDeclaration') replaceImport(node, edits, names);
  }
  for (const node of found.vars) assign(node, edits, names, found.heads.has(node));
  if (hasValue) {
    edits.insert(last.expression.start, 'return (');
    edits.insert(last.end - (code[last.end - 1] === ';' ? 1 : 0), ')');
  }
  const open = (names.length ? `var ${names.join(', ')};` : '') + OPEN + functions;
  return { text: open + edits.apply() + CLOSE, shift: open.length, hasValue };
}

/** Finds what is outside of functions: `await` or `import`, `var` declarations, and those of them in a loop's head. */
function survey(program) {
  const found = { waits: false, vars: [], heads: new Set() };
  const nodes = [program];
  while (nodes.length) {
    const node = nodes.pop();
    if (/Function/.test(node.type)) continue;
    if (node.type === 'AwaitExpression' || node.type === 'ImportDeclaration' || node.await) found.waits = true;
    if (node.type === 'VariableDeclaration' && node.kind === 'var') found.vars.push(node);
    if (node.type === 'ForStatement') found.heads.add(node.init);
    if (node.type === 'ForInStatement' || node.type === 'ForOfStatement') found.heads.add(node.left);
    for (const value of Object.values(node)) {
      for (const child of Array.isArray(value) ? value : [value]) if (child && child.type) nodes.push(child);
    }
  }
  return found;
}

function loosen(node, edits) {
  if (node.kind !== 'const' && node.kind !== 'let') return;
  edits.replace(node.start, node.start + node.kind.length, 'var'.padEnd(node.kind.length));
  if (node.kind === 'let') {
    for (const { id, init } of node.declarations) if (!init) edits.insert(id.end, ' = undefined');
  }
}

function nameClass(node, edits, keyword) {
  edits.insert(node.start, `${keyword}${node.id.name} = `);
  edits.insert(node.end, ';');
}

/** Turns `const {a} = f(), b = 2` into `void (({a} = f()), (b = 2))`; in a loop's head it only removes the keyword. */
function assign(node, edits, names, head = false) {
  for (const { id, init, end } of node.declarations) {
    addNames(id, names);
    if (head) continue;
    edits.insert(id.start, '(');
    edits.insert(end, init ? ')' : node.kind === 'let' ? ' = undefined)' : ')');
  }
  edits.replace(node.start, node.start + node.kind.length, head ? '' : 'void (');
  if (!head) edits.insert(node.declarations[node.declarations.length - 1].end, ');');
}

function addNames(pattern, names) {
  if (!pattern) return;
  if (pattern.type === 'Identifier') names.push(pattern.name);
  else if (pattern.type === 'ObjectPattern') for (const part of pattern.properties) addNames(part.value || part.argument, names);
  else if (pattern.type === 'ArrayPattern') for (const part of pattern.elements) addNames(part, names);
  else if (pattern.type === 'AssignmentPattern') addNames(pattern.left, names);
  else if (pattern.type === 'RestElement') addNames(pattern.argument, names);
}

function replaceImport(node, edits, names) {
  const source = edits.code.slice(node.source.start, node.end).replace(/;$/, '');
  const [, module, attributes] = /^('[^']*'|"[^"]*")\s*(?:with\s*)?([^]*)$/.exec(source);
  const options = attributes ? `, { with: ${attributes} }` : '';
  let text = `await import(${module}${options})`;
  const parts = [];
  for (const { type, imported, local } of node.specifiers) {
    names.push(local.name);
    if (type === 'ImportNamespaceSpecifier') text = `${local.name} = ${text}`;
    else {
      const key = type === 'ImportDefaultSpecifier' ? 'default' : imported.name ?? JSON.stringify(imported.value);
      parts.push(`${key}: ${local.name}`);
    }
  }
  if (parts.length) text = `({ ${parts.join(', ')} } = ${text})`;
  const lines = edits.code.slice(node.start, node.end).split('\n').length - 1;
  edits.replace(node.start, node.end, `;${text};${'\n'.repeat(lines)}`);
}

class Edits {
  constructor(code) {
    this.code = code;
    this.list = [];
  }

  insert(at, text) {
    this.replace(at, at, text);
  }

  replace(start, end, text) {
    this.list.push({ start, end, text, order: this.list.length });
  }

  apply() {
    this.list.sort((a, b) => a.start - b.start || a.order - b.order);
    let text = '';
    let at = 0;
    for (const edit of this.list) {
      text += this.code.slice(at, edit.start) + edit.text;
      at = edit.end;
    }
    return text + this.code.slice(at);
  }
}

module.exports = { compile };
