// A reporter of vitest: writes how each test ended.
import { createRequire } from 'node:module';

const { rows } = createRequire(import.meta.url)('./capsule.cjs');

export default class {
  constructor() {
    this.out = rows('vitest');
  }

  // Vitest 3 and later; earlier ones say `onFinished`.
  onTestRunEnd(modules = [], errors = []) {
    this.finish(modules.map((each) => each.task), errors);
  }

  onFinished(files = [], errors = []) {
    this.finish(files, errors);
  }

  finish(files, errors) {
    if (this.finished) return;
    this.finished = true;
    for (const file of files) this.tell(file, file, []);
    this.out.write({ ended: errors.length || files.some((file) => file.result?.state === 'fail') ? 1 : 0 });
  }

  tell(file, task, above) {
    const path = this.out.path(file.filepath);
    if (task === file && file.result?.errors?.length) {
      this.out.write({ error: path, text: String(file.result.errors[0].message || '').slice(-4000) });
    }
    for (const each of task.tasks ?? []) {
      const names = [...above, each.name];
      if (each.type === 'suite') this.tell(file, each, names);
      else {
        const state = each.result?.state;
        const result = state === 'pass' ? 'passed' : state === 'fail' ? 'failed' : 'skipped';
        this.out.write({ test: `${path}::${names.join(' > ')}`, result });
      }
    }
  }
}
