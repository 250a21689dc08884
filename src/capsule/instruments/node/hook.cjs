// Loaded before every Node program: gives jest, vitest and mocha a reporter of ours beside their own.
const { basename, join } = require('path');
const { isMainThread } = require('worker_threads');

const program = process.argv[1] || '';
const words = process.argv.slice(2);
const is = (...names) => names.some((name) => new RegExp(`[/\\\\]node_modules[/\\\\](${name}[/\\\\]|\\.bin[/\\\\]${name}$)`).test(program));
const has = (...options) => words.some((word) => options.some((option) => word === option || word.startsWith(option + '=')));

// Options go before `--`; at the end otherwise, because some take all words that follow.
function add(...options) {
  const end = process.argv.indexOf('--', 2);
  process.argv.splice(end < 0 ? process.argv.length : end, 0, ...options);
}

// The reporter that mocha is told to use on the command line, taken out of it.
function taken() {
  const at = process.argv.findIndex((word, index) => index > 1 && /^(--reporter|-R)(=|$)/.test(word));
  if (at < 0) return undefined;
  const [, value] = process.argv[at].split(/=(.*)/s);
  return value === undefined ? process.argv.splice(at, 2)[1] : (process.argv.splice(at, 1), value);
}

if (process.env.CAPSULE_REPORTS && isMainThread) {
  const { withdraw, KEY } = require('./capsule.cjs');
  if (process.execArgv.includes('--test')) withdraw();
  else if (is('jest', 'jest-cli')) {
    withdraw();
    if (!has('--reporters')) add('--reporters=default');
    add(`--reporters=${join(__dirname, 'jest_reporter.cjs')}`);
  } else if (is('vitest') && !['list', 'init', 'bench'].includes(words[0])) {
    withdraw();
    if (!has('--reporter')) add('--reporter=default');
    add(`--reporter=${join(__dirname, 'vitest_reporter.mjs')}`);
  } else if (is('mocha') && basename(program) !== 'worker.js') {
    // `mocha` may start itself once more, with the options that its own settings ask Node for.
    const reporter = taken();
    if (reporter && !reporter.startsWith(__dirname)) process.env.CAPSULE_ASK_REPORTER = reporter;
    globalThis[KEY] = { reporter: process.env.CAPSULE_ASK_REPORTER };
    add(`--reporter=${join(__dirname, 'mocha_reporter.cjs')}`);
  }
}
