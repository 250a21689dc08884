// A reporter of `node --test`: writes how each test ended into a file of its own (one line of JSON each).
import { createRequire } from 'node:module';

const { rows } = createRequire(import.meta.url)('./capsule.cjs');

function outcome(data, passed) {
  if (data.skip !== undefined && data.skip !== false) return 'skipped';
  if (data.todo !== undefined && data.todo !== false) return passed ? 'passed' : 'xfailed';
  return passed ? 'passed' : 'failed';
}

export default async function* report(events) {
  const names = [];
  const printed = {};
  const { write, path: place } = rows('node');
  for await (const { type, data } of events) {
    if (type === 'test:stderr') printed[data.file] = ((printed[data.file] ?? '') + data.message).slice(-4000);
    if (type === 'test:start') names[data.nesting] = data.name;
    if (type !== 'test:pass' && type !== 'test:fail') continue;
    if (data.details?.type === 'suite') continue;
    const path = place(data.file);
    const nested = names.slice(0, data.nesting).concat(data.name).join(' > ');
    // A file that cannot be loaded, or that holds no test, is told as a test named after itself.
    const isFile = data.nesting === 0 && data.file && data.file.endsWith(data.name);
    if (isFile && type === 'test:fail') write({ error: path || data.name, text: printed[data.file] ?? String(data.details?.error) });
    if (!isFile) write({ test: `${path}::${nested}`, result: outcome(data, type === 'test:pass') });
  }
  write({ ended: 0 });
}
