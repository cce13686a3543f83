'use strict';

// Words and numbers in what is saved.

/** Where the path of a value begins that code did not make. */
const STARTS = { GLOBAL: 'global', MODULE: 'module', NAMESPACE: 'namespace' };

/** What a property is, added up. */
const FLAGS = { WRITABLE: 1, ENUMERABLE: 2, CONFIGURABLE: 4, ACCESSOR: 8 };

module.exports = { FLAGS, STARTS };
