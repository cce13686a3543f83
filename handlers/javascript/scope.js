'use strict';

// Finds what code declares at its top level, and where it uses names that no function or block of it declares.

const FUNCTION = /Function/;
const READS = 'reads';
const ASSIGNS = 'assigns';
const DECLARES = 'declares';

class Survey {
  /** Of a program as acorn parses it. */
  constructor(program) {
    this.waits = false; // whether there is an `await`, `import` or `export ... from` outside of functions
    this.kinds = new Map(); // what each name of the top level is declared with
    this.starts = new Map(); // where `let`, `const` and `class` of the top level have a value
    this.vars = []; // declarations with `var` outside of functions
    this.heads = new Set(); // those of them in the head of a loop
    this.metas = []; // `import.meta`
    // `shorthand`: it is the whole property of an object. `compound`: the assignment, if its operator is not `=`.
    this.uses = []; // { node, role, inFunction, shorthand, compound }
    for (const node of program.body) this.declare(node.declaration ?? node);
    this.visitAll(program.body, null);
  }

  declare(node) {
    if (node.type === 'ImportDeclaration') {
      for (const { local } of node.specifiers) this.kinds.set(local.name, 'const');
    } else if (node.type === 'VariableDeclaration' && node.kind !== 'var') {
      for (const { id, end } of node.declarations) {
        for (const name of namesIn(id)) {
          this.kinds.set(name, node.kind);
          this.starts.set(name, end);
        }
      }
    } else if (node.id && (node.type === 'ClassDeclaration' || node.type === 'FunctionDeclaration')) {
      this.kinds.set(node.id.name, node.type === 'ClassDeclaration' ? 'class' : 'function');
      if (node.type === 'ClassDeclaration') this.starts.set(node.id.name, node.end);
    }
  }

  visitAll(nodes, scope) {
    for (const node of nodes) this.visit(node, scope);
  }

  visit(node, scope, role = READS) {
    if (!node) return;
    if (FUNCTION.test(node.type)) return this.visitFunction(node, scope);
    const visitor = this[node.type];
    if (visitor) visitor.call(this, node, scope, role);
    else this.visitChildren(node, scope, role);
  }

  visitChildren(node, scope, role = READS) {
    for (const value of Object.values(node)) {
      for (const child of Array.isArray(value) ? value : [value]) if (child?.type) this.visit(child, scope, role);
    }
  }

  visitFunction(node, scope) {
    const names = new Set(node.type === 'ArrowFunctionExpression' ? [] : ['arguments']);
    if (node.type === 'FunctionExpression' && node.id) names.add(node.id.name);
    for (const param of node.params) for (const name of namesIn(param)) names.add(name);
    addHoisted(node.body, names);
    const inner = { names, outer: scope, inFunction: true };
    this.visitAll(node.params, inner);
    this.visit(node.body, inner);
  }

  visitBlock(node, scope, statements, more = []) {
    const names = new Set(more);
    for (const statement of statements) addLexical(statement, names);
    this.visitChildren(node, { names, outer: scope, inFunction: scope?.inFunction ?? false });
  }

  BlockStatement(node, scope) {
    this.visitBlock(node, scope, node.body);
  }

  StaticBlock(node, scope) {
    const names = new Set();
    for (const statement of node.body) addHoisted(statement, names);
    this.visitBlock(node, { names, outer: scope, inFunction: true }, node.body);
  }

  SwitchStatement(node, scope) {
    this.visitBlock(node, scope, node.cases.flatMap((one) => one.consequent));
  }

  CatchClause(node, scope) {
    this.visitBlock(node, scope, [], namesIn(node.param));
  }

  ForStatement(node, scope) {
    this.heads.add(node.init);
    this.visitBlock(node, scope, [node.init]);
  }

  ForInStatement(node, scope) {
    if (node.await && !scope?.inFunction) this.waits = true;
    this.heads.add(node.left);
    const names = new Set();
    addLexical(node.left, names);
    const inner = { names, outer: scope, inFunction: scope?.inFunction ?? false };
    this.visit(node.left, inner, ASSIGNS);
    this.visit(node.right, inner);
    this.visit(node.body, inner);
  }

  ForOfStatement(node, scope) {
    this.ForInStatement(node, scope);
  }

  ClassDeclaration(node, scope) {
    const names = new Set(node.id ? [node.id.name] : []);
    const inner = { names, outer: scope, inFunction: scope?.inFunction ?? false };
    this.visit(node.superClass, inner);
    this.visit(node.body, inner);
  }

  ClassExpression(node, scope) {
    this.ClassDeclaration(node, scope);
  }

  MethodDefinition(node, scope) {
    if (node.computed) this.visit(node.key, scope);
    // A value of a field is found when an object is made, as in a function.
    const field = node.type === 'PropertyDefinition' && !node.static;
    this.visit(node.value, field ? { names: new Set(), outer: scope, inFunction: true } : scope);
  }

  PropertyDefinition(node, scope) {
    this.MethodDefinition(node, scope);
  }

  VariableDeclaration(node, scope) {
    if (node.kind === 'var' && !scope?.inFunction) {
      this.vars.push(node);
      for (const { id } of node.declarations) for (const name of namesIn(id)) this.kinds.set(name, 'var');
    }
    for (const { id, init } of node.declarations) {
      this.visit(id, scope, DECLARES);
      this.visit(init, scope);
    }
  }

  AssignmentExpression(node, scope) {
    const before = this.uses.length;
    this.visit(node.left, scope, ASSIGNS);
    const use = this.uses[before];
    if (node.operator !== '=' && use?.node === node.left) use.compound = node;
    this.visit(node.right, scope);
  }

  UpdateExpression(node, scope) {
    this.visit(node.argument, scope, ASSIGNS);
  }

  AssignmentPattern(node, scope, role) {
    this.visit(node.left, scope, role);
    this.visit(node.right, scope);
  }

  Property(node, scope, role) {
    if (node.computed) this.visit(node.key, scope);
    const before = this.uses.length;
    this.visit(node.value, scope, role);
    if (node.shorthand && this.uses[before]?.node.start === node.start) this.uses[before].shorthand = true;
  }

  MemberExpression(node, scope) {
    this.visit(node.object, scope);
    if (node.computed) this.visit(node.property, scope);
  }

  LabeledStatement(node, scope) {
    this.visit(node.body, scope);
  }

  BreakStatement() {}

  ContinueStatement() {}

  AwaitExpression(node, scope) {
    if (!scope?.inFunction) this.waits = true;
    this.visit(node.argument, scope);
  }

  ImportDeclaration() {
    this.waits = true;
  }

  ExportAllDeclaration() {
    this.waits = true;
  }

  ExportNamedDeclaration(node, scope) {
    if (node.source) this.waits = true;
    this.visit(node.declaration, scope);
  }

  MetaProperty(node) {
    if (node.meta.name === 'import') this.metas.push(node);
  }

  Identifier(node, scope, role) {
    for (let at = scope; at; at = at.outer) if (at.names.has(node.name)) return;
    this.uses.push({ node, role, inFunction: scope?.inFunction ?? false, shorthand: false, compound: null });
  }
}

/** The names that a pattern such as `{ a, b: [c = 1], ...d }` declares. */
function namesIn(pattern) {
  switch (pattern?.type) {
    case 'Identifier':
      return [pattern.name];
    case 'ObjectPattern':
      return pattern.properties.flatMap((part) => namesIn(part.value ?? part.argument));
    case 'ArrayPattern':
      return pattern.elements.flatMap(namesIn);
    case 'AssignmentPattern':
      return namesIn(pattern.left);
    case 'RestElement':
      return namesIn(pattern.argument);
    default:
      return [];
  }
}

/** Adds what a statement declares for the block that it is in. */
function addLexical(node, names) {
  if (node?.type === 'VariableDeclaration' && node.kind !== 'var') {
    for (const { id } of node.declarations) for (const name of namesIn(id)) names.add(name);
  } else if (node?.type === 'ClassDeclaration' || node?.type === 'FunctionDeclaration') names.add(node.id.name);
}

/** Adds what is declared for the whole function that the node is in. */
function addHoisted(node, names) {
  if (node.type === 'FunctionDeclaration') names.add(node.id.name);
  if (FUNCTION.test(node.type)) return;
  if (node.type === 'VariableDeclaration' && node.kind === 'var') {
    for (const { id } of node.declarations) for (const name of namesIn(id)) names.add(name);
  }
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value]) if (child?.type) addHoisted(child, names);
  }
}

module.exports = { ASSIGNS, DECLARES, Survey };
