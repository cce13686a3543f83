'use strict';

// Turns the code of one run into scripts whose names later runs can use and declare again.
//
// What the code declares at its top level becomes an assignment, in the same place, to a `let` declared before that. So
// any later run can declare the name again, as anything, functions of earlier runs see that, and the name is not a
// property of `globalThis`. A name that a global has is spelled differently, because libraries and Node itself use
// globals. Functions are a script of their own, which runs first. Code that awaits or imports at the top level runs
// inside an async function.
//
// V8's own mode for consoles (`replMode` of its inspector) does not do: there, a `let` cannot become a `const`, a `var`
// or a function later; libraries see its names; and it has neither `import()` nor names of files with spaces.

const vm = require('vm');
const acorn = require('internal/deps/acorn/acorn/dist/acorn');
const { importModule } = require('./modules.js');
const { ASSIGNS, DECLARES, Survey } = require('./scope.js');

const SYNTAX = {
  ecmaVersion: 'latest',
  allowAwaitOutsideFunction: true,
  allowImportExportEverywhere: true,
};
const OPEN = '(async () => {';
const LOGICAL = /^(\|\||&&|\?\?)=$/;
const CLOSE = '\n})';

const PLAIN = { displayErrors: false }; // Errors are shown with the line of the code, not of the script.

const { Script } = vm;
const { stringify } = JSON;

// Names that the scripts use: an assignment to a constant is one to CONSTANT, and `x` before its `let x` is EARLY.x.
const META = 'meta$';
const EARLY = 'early$';
const CONSTANT = 'constant$';

const globals = new Set(); // names that are spelled otherwise
const spellings = new Map(); // of the names that code declared
const constants = new Set(); // those that are constant since they were declared last

/** To be called when all globals are there, with the `import.meta` of the code. */
function prepareCells(meta) {
  for (const name of Object.getOwnPropertyNames(globalThis)) globals.add(name);
  const early = new Proxy(Object.create(null), { get: refuseEarly, set: refuseEarly });
  const set = `(meta, early) => { ${META} = meta; ${EARLY} = early; }`;
  new Script(`const ${CONSTANT} = undefined; let ${META}, ${EARLY}; ${set}`).runInThisContext()(meta, early);
}

function refuseEarly(target, name) {
  throw new ReferenceError(`Cannot access '${name}' before initialization`);
}

/** Declares a name that code declares; returns its spelling in scripts. */
function spell(name) {
  let spelling = spellings.get(name);
  if (spelling) return spelling;
  spelling = globals.has(name) ? `${name}$` : name;
  for (;;) {
    try {
      new Script(`let ${spelling};`).runInThisContext();
      break;
    } catch {
      spelling += '$'; // A script that could not be parsed here declared it, or it is a word such as `undefined`.
    }
  }
  spellings.set(name, spelling);
  return spelling;
}

/** Sets variables, which code can declare again. */
function setVariables(values) {
  let text = '';
  for (const name in values) {
    text += `${spell(name)} = values[${stringify(name)}];`;
    constants.delete(name);
  }
  if (text) new Script(`(values) => {${text}}`).runInThisContext()(values);
}

/** The names that code declared: how scripts spell them, whether they are constant, and their values. */
function variables() {
  const list = [];
  let text = '';
  for (const [name, spelling] of spellings) {
    list[list.length] = { name, spelling, constant: constants.has(name), value: undefined };
    text += `${spelling},`;
  }
  const values = evaluate(`[${text}]`);
  for (let i = 0; i < list.length; i++) list[i].value = values[i];
  return list;
}

/** Declares names that another session had; returns a function for each that sets its value. */
function adopt(list) {
  for (const { name, spelling, constant } of list) {
    if (spellings.get(name) !== spelling) {
      try {
        evaluate(`let ${spelling};`);
        spellings.set(name, spelling);
      } catch {
        spell(name); // Another version of Node has this name for itself.
      }
    }
    if (constant) constants.add(name);
  }
  return evaluate(`[${list.map(({ name }) => `(value) => { ${spellings.get(name)} = value; }`).join()}]`);
}

/** The value of a script that sees the variables of the session. */
function evaluate(text, filename = '<saved>') {
  return script(text, filename).runInThisContext(PLAIN);
}

const isGlobal = (name) => globals.has(name);

/**
 * Returns a function that runs the code, whether what that returns is the value of the last expression, whether it is
 * a promise because the code waits at its top level, and a function that finds the column of the code for one of a
 * script.
 */
function compile(code, filename) {
  let cell;
  try {
    cell = new Cell(code);
  } catch (mistake) {
    // Node reports the mistake itself, or accepts syntax that the parser does not know. Or earlier code broke the
    // parser.
    const whole = compileAsIs(code, filename, mistake);
    const run = () => whole.runInThisContext(PLAIN);
    return { run, hasValue: true, waits: false, columnOf: (line, column) => column };
  }
  const functions = cell.functions.length ? script(cell.functionText(), filename) : null;
  const { waits } = cell.found;
  const { text, shift } = cell.text();
  const main = script(text, filename, shift);
  cell.keep();
  const run = () => {
    if (functions) functions.runInThisContext(PLAIN);
    const value = main.runInThisContext(PLAIN);
    return waits ? value() : value;
  };
  const columnOf = (line, column) => cell.edits.column(line, column);
  return { run, hasValue: cell.hasValue, waits, columnOf };
}

function script(text, filename, shift = 0) {
  return new Script(text, { filename, columnOffset: -shift, importModuleDynamically: importModule });
}

function compileAsIs(code, filename, mistake) {
  try {
    return script(code, filename);
  } catch (error) {
    // A top-level `await` is not the mistake: it is allowed here. Compiled like this, the code shows the real one.
    if (/\bawait\b/.test(error.message)) script(OPEN + code + CLOSE, filename, OPEN.length);
    // Nor is an import or export, which no script can have. Only the parser knows the mistake.
    if (/\b(import|export)\b/.test(error.message) && mistake.loc) throw located(mistake, code, filename);
    throw error;
  }
}

/** The parser's error as Node would show it. */
function located({ message, loc: { line, column } }, code, filename) {
  const error = new SyntaxError(message.replace(/ \(\d+:\d+\)$/, ''));
  const shown = `${filename}:${line}\n${code.split('\n')[line - 1]}\n${' '.repeat(column)}^\n\n`;
  error.stack = shown + error.stack;
  return error;
}

class Cell {
  constructor(code) {
    this.code = code;
    this.program = acorn.parse(code, SYNTAX);
    this.found = new Survey(this.program);
    this.edits = new Edits(code);
    this.functions = []; // declarations, which run first
    this.imports = ''; // run first, too
    const { body } = this.program;
    const last = body[body.length - 1];
    this.hasValue = last !== undefined && last.type === 'ExpressionStatement';
    for (const name of this.found.kinds.keys()) spell(name);
    if (code.startsWith('#!')) this.edits.replace(0, 2, '//');
    for (const node of this.found.metas) this.edits.replace(node.start, node.end, META);
    for (const use of this.found.uses) this.respell(use);
    for (const node of body) this.rewrite(node);
    for (const node of this.found.vars) this.assign(node);
    if (this.found.waits && this.hasValue) {
      this.edits.insert(last.start, 'return (');
      this.edits.insert(last.end - (code[last.end - 1] === ';' ? 1 : 0), ')');
    }
  }

  /** The names are now what this code declared them as. */
  keep() {
    for (const [name, kind] of this.found.kinds) {
      if (kind === 'const') constants.add(name);
      else constants.delete(name);
    }
  }

  text() {
    const { code, edits, found, imports } = this;
    let text = '';
    let at = 0;
    for (const { start, end } of this.functions) {
      text += `${edits.text(at, start)};${spaces(code.slice(start + 1, end))}`;
      at = end;
    }
    text += edits.text(at, code.length);
    if (!found.waits) return { text, shift: 0 };
    const strict = this.program.body.some((node) => node.directive === 'use strict') ? "'use strict';" : '';
    const open = OPEN + strict + imports;
    return { text: open + text + CLOSE, shift: open.length };
  }

  /** The code with everything replaced by spaces but functions and directives. */
  functionText() {
    const { code, edits, program } = this;
    let text = '';
    let at = 0;
    for (const { directive, id, start, end } of [...program.body.filter((node) => node.directive), ...this.functions]) {
      text += spaces(code.slice(at, start));
      // What is inserted at its end belongs to what follows.
      text += directive ? code.slice(start, end) : `${spell(id.name)} = ${edits.text(start, end - 1)}};`;
      at = end;
    }
    return text;
  }

  /** Changes a name where it is used, if it is spelled otherwise, or if this use is an error. */
  respell({ node, role, inFunction, shorthand, compound }) {
    const { name, start, end } = node;
    const { kinds, starts } = this.found;
    const isConstant = kinds.has(name) ? kinds.get(name) === 'const' : constants.has(name);
    let text = spellings.get(name) ?? name;
    if (!inFunction && start < starts.get(name) && role !== DECLARES) text = `${EARLY}.${name}`;
    else if (role === ASSIGNS && isConstant) {
      if (compound) {
        const { operator } = compound;
        const at = this.code.indexOf(operator, end);
        const isLogical = LOGICAL.test(operator); // then it assigns only if it has to
        this.edits.replace(at, at + operator.length, `${operator.slice(0, -1)} (${isLogical ? `${CONSTANT} =` : ''}`);
        this.edits.insert(compound.end, ')');
        if (!isLogical) text = `${CONSTANT} = ${text}`;
      } else text = CONSTANT;
    }
    if (text !== name) this.edits.replace(start, end, shorthand ? `${name}: ${text}` : text);
  }

  /** Changes what a statement of the top level declares, imports or exports. */
  rewrite(node) {
    const { edits } = this;
    switch (node.type) {
      case 'VariableDeclaration':
        if (node.kind !== 'var') this.assign(node);
        break;
      case 'ClassDeclaration':
        edits.insert(node.start, `${spell(node.id.name)} = `);
        edits.insert(node.end, ';');
        break;
      case 'FunctionDeclaration':
        this.functions.push(node);
        // Without a name of its own, it gets that of the variable, and calls of itself are those of the variable.
        if (spell(node.id.name) === node.id.name) edits.replace(node.id.start, node.id.end, '');
        break;
      case 'ImportDeclaration':
      case 'ExportAllDeclaration':
        this.import(node);
        this.blank(node.start, node.end);
        break;
      case 'ExportNamedDeclaration':
        if (node.source) this.import(node);
        this.blank(node.start, node.declaration ? node.declaration.start : node.end);
        if (node.declaration) this.rewrite(node.declaration);
        break;
      case 'ExportDefaultDeclaration':
        this.exportDefault(node, node.declaration);
    }
  }

  exportDefault(node, { type, id, start }) {
    if (id && /Declaration$/.test(type)) {
      this.blank(node.start, start);
      this.rewrite(node.declaration);
      return;
    }
    const { code, edits } = this;
    const after = code.indexOf('default', node.start) + 'default'.length;
    edits.replace(node.start, after, `void${spaces(code.slice(node.start + 5, after))}(`);
    if (code[node.end - 1] === ';') edits.insert(node.end - 1, ')');
    else edits.insert(node.end, ');');
  }

  /** Turns `const {a} = f(), b = 2` into `!   ({a} = f(), b = 2)`; in a loop's head it only removes the keyword. */
  assign(node) {
    const { code, edits, found } = this;
    const { kind, declarations, start, end } = node;
    const after = start + kind.length;
    if (found.heads.has(node)) return edits.replace(start, after, ' '.repeat(kind.length));
    edits.replace(start, after, '!'.padEnd(kind.length - 1) + '(');
    for (const { id, init } of declarations) if (!init && kind !== 'var') edits.insert(id.end, ' = undefined');
    edits.insert(declarations[declarations.length - 1].end, code[end - 1] === ';' ? ')' : ');');
  }

  import(node) {
    const source = this.code.slice(node.source.start, node.end).replace(/;$/, '');
    const [, module, attributes] = /^('[^']*'|"[^"]*")\s*(?:with\s*)?([^]*)$/.exec(source);
    const options = attributes ? `, { with: ${attributes.replace(/\s+/g, ' ')} }` : '';
    let text = `await import(${module}${options})`;
    const parts = [];
    for (const { type, imported, local } of node.type === 'ImportDeclaration' ? node.specifiers : []) {
      const name = spell(local.name);
      if (type === 'ImportNamespaceSpecifier') text = `${name} = ${text}`;
      else {
        const key = type === 'ImportDefaultSpecifier' ? 'default' : imported.name ?? JSON.stringify(imported.value);
        parts.push(`${key}: ${name} = ${missing(module, key)}`);
      }
    }
    if (parts.length) text = `({ ${parts.join(', ')} } = ${text})`;
    this.imports += `${text};`;
  }

  blank(start, end) {
    if (start < end) this.edits.replace(start, end, `;${spaces(this.code.slice(start + 1, end))}`);
  }
}

/** Throws what an import throws that finds no such name. */
function missing(module, key) {
  const message = `The requested module ${module} does not provide an export named '${key}'`;
  const shown = JSON.stringify(`SyntaxError: ${message}\n    at import`);
  return `(() => { throw Object.assign(new SyntaxError(${JSON.stringify(message)}), { stack: ${shown} }) })()`;
}

/** As many spaces as the text has characters, on as many lines. */
function spaces(text) {
  return text.replace(/[^\n\r\u2028\u2029]/g, ' ');
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

  /** A part of the code with the edits in it. */
  text(start, end) {
    const isReplacement = ({ start, end }) => start < end;
    this.list.sort((a, b) => a.start - b.start || isReplacement(a) - isReplacement(b) || a.order - b.order);
    let text = '';
    let at = start;
    for (const edit of this.list) {
      if (edit.start < start || edit.end > end) continue;
      text += this.code.slice(at, edit.start) + edit.text;
      at = edit.end;
    }
    return text + this.code.slice(at, end);
  }

  /** The column before the edits; lines are the same. */
  column(line, column) {
    let first = 0;
    for (let i = 1; i < line; i++) first = this.code.indexOf('\n', first) + 1;
    let at = first + column;
    for (const { start, end, text } of this.list) {
      if (start < first) continue;
      if (start >= at) break;
      at = Math.max(start, at - (text.length - (end - start)));
    }
    return at - first;
  }
}

module.exports = { adopt, compile, evaluate, isGlobal, prepareCells, setVariables, variables };
