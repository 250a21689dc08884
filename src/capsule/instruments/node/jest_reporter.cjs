// A reporter of jest: writes how each test ended.
const { rows } = require('./capsule.cjs');

const RESULTS = { passed: 'passed', failed: 'failed' };

module.exports = class {
  constructor() {
    this.out = rows('jest');
  }

  onTestResult(_test, result) {
    const path = this.out.path(result.testFilePath);
    if (result.testExecError) this.out.write({ error: path, text: String(result.failureMessage || '').slice(-4000) });
    for (const each of result.testResults) {
      const name = [...each.ancestorTitles, each.title].join(' > ');
      this.out.write({ test: `${path}::${name}`, result: RESULTS[each.status] || 'skipped' });
    }
  }

  onRunComplete(_contexts, results) {
    this.out.write({ ended: results.success ? 0 : 1 });
  }
};
