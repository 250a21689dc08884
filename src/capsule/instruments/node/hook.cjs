// Loaded before every Node program: gives jest, vitest and mocha a reporter of ours beside their own.
const { basename, join } = require('node:path');

const program = process.argv[1] || '';
const words = process.argv.slice(2);
const has = (option) => words.some((word) => word === option || word.startsWith(option + '='));
const inside = (name) => new RegExp(`[/\\\\]${name}[/\\\\]`).test(program) || basename(program) === name;

if (process.env.CAPSULE_REPORTS && !process.env.CAPSULE_ASKED_IN) {
  if ((inside('jest') || inside('jest-cli')) && !inside('jest-worker')) {
    if (!has('--reporters')) process.argv.push('--reporters=default');
    process.argv.push(`--reporters=${join(__dirname, 'jest_reporter.cjs')}`);
  } else if (inside('vitest') && (words.length === 0 || !['list', 'init', 'bench'].includes(words[0]))) {
    if (!has('--reporter')) process.argv.push('--reporter=default');
    process.argv.push(`--reporter=${join(__dirname, 'vitest_reporter.mjs')}`);
  } else if (inside('mocha') && !has('--reporter') && !words.includes('-R')) {
    process.argv.push(`--reporter=${join(__dirname, 'mocha_reporter.cjs')}`);
  }
}
