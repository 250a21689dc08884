// What asks for names, taken out of the environment of what the runner starts in turn; and rows of JSON, a file per run.
const { appendFileSync } = require('fs');
const { delimiter, dirname, join, relative, sep } = require('path');
const { randomBytes } = require('crypto');

const KEY = Symbol.for('capsule.rows');
const home = dirname(__dirname);
const ASKED = { NODE_OPTIONS: 'NODE', TOX_OVERRIDE: 'TOX', TOX_TESTENV_PASSENV: 'TOX3', SPEC_OPTS: 'RSPEC', PHP_INI_SCAN_DIR: 'PHP' };

function withdraw() {
  const env = process.env;
  if (env.CAPSULE_REPORTS) globalThis[KEY] = { folder: env.CAPSULE_REPORTS, tree: env.CAPSULE_TREE || process.cwd() };
  const put = (name, value) => {
    if (value) env[name] = value;
    else delete env[name];
  };
  for (const [name, piece] of Object.entries(ASKED)) {
    const ours = env[`CAPSULE_ASK_${piece}`];
    if (env[name] && ours) put(name, env[name].replace(ours, '').replace(`--require="${join(__dirname, 'hook.cjs')}"`, '').trim());
  }
  for (const name of ['PATH', 'PYTHONPATH']) {
    const rest = (env[name] || '').split(delimiter).filter((each) => each !== join(home, 'bin') && each !== join(home, 'python'));
    put(name, rest.join(delimiter));
  }
  for (const name of Object.keys(env)) if (/^CAPSULE_(ASK|REPORTS|TREE)/.test(name)) delete env[name];
}

function rows(runner) {
  withdraw();
  const asked = globalThis[KEY];
  const file = asked && join(asked.folder, `${runner}-${process.pid}-${randomBytes(4).toString('hex')}.jsonl`);
  const write = (row) => file && appendFileSync(file, JSON.stringify(row) + '\n');
  write({ runner });
  return { write, path: (name) => (asked && name ? relative(asked.tree, name).split(sep).join('/') : '') };
}

module.exports = { rows, withdraw, asked: globalThis[KEY] !== undefined, KEY };
