// Writes rows of JSON, one file per process and runner.
const { appendFileSync } = require('node:fs');
const { join, relative } = require('node:path');
const { randomBytes } = require('node:crypto');

exports.rows = (runner) => {
  const file = join(process.env.CAPSULE_REPORTS, `${runner}-${process.pid}-${randomBytes(4).toString('hex')}.jsonl`);
  const write = (row) => appendFileSync(file, JSON.stringify(row) + '\n');
  write({ runner });
  return {
    write,
    path: (name) => relative(process.env.CAPSULE_TREE || '.', name || ''),
  };
};
