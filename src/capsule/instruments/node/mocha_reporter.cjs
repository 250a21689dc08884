// A reporter of mocha: prints what `spec` prints, and writes how each test ended.
const { createRequire } = require('node:module');
const { rows } = require('./rows.cjs');

const Mocha = createRequire(process.argv[1])('mocha');

module.exports = class extends Mocha.reporters.Spec {
  constructor(runner, options) {
    super(runner, options);
    const out = rows('mocha');
    const name = (test) => `${out.path(test.file)}::${test.titlePath().join(' > ')}`;
    runner.on('pass', (test) => out.write({ test: name(test), result: 'passed' }));
    runner.on('pending', (test) => out.write({ test: name(test), result: 'skipped' }));
    runner.on('fail', (test) => out.write({ test: name(test), result: test.type === 'hook' ? 'errored' : 'failed' }));
    runner.on('end', () => out.write({ ended: runner.failures ? 1 : 0 }));
  }
};
