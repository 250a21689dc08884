// A reporter of mocha: prints what the project's own reporter prints, and writes how each test ended.
const { createRequire } = require('module');
const { join } = require('path');
const { rows, KEY } = require('./capsule.cjs');

const asked = globalThis[KEY] || {};
const ofMocha = createRequire(process.argv[1]);
const loaded = ofMocha('mocha');
const Mocha = loaded.default || loaded;

// The one on the command line, or that of the project's settings.
function chosen() {
  const ours = (word) => word.startsWith('--reporter=');
  let name = asked.reporter;
  try {
    name = name || ofMocha('mocha/lib/cli').loadOptions(process.argv.slice(2).filter((word) => !ours(word))).reporter;
  } catch {
    // another release of mocha
  }
  name = Array.isArray(name) ? name[name.length - 1] : name;
  if (!name || Mocha.reporters[name]) return Mocha.reporters[name || 'spec'];
  try {
    return createRequire(join(process.cwd(), 'package.json'))(name);
  } catch {
    return Mocha.reporters.spec;
  }
}

const Own = chosen();

module.exports = class {
  constructor(runner, options) {
    this.own = new Own(runner, options);
    const out = rows('mocha');
    const name = (test) => `${out.path(test.file)}::${test.titlePath().join(' > ')}`;
    runner.on('pass', (test) => out.write({ test: name(test), result: 'passed' }));
    runner.on('pending', (test) => out.write({ test: name(test), result: 'skipped' }));
    runner.on('fail', (test) => out.write({ test: name(test), result: test.type === 'hook' ? 'errored' : 'failed' }));
    runner.on('end', () => out.write({ ended: runner.failures ? 1 : 0 }));
  }

  done(failures, fn) {
    return this.own.done ? this.own.done(failures, fn) : fn && fn(failures);
  }
};
