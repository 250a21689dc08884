<?php
// Loaded before every PHP program: asks PHPUnit, and what is built on it, for JUnit XML.
(static function (): void {
    $reports = getenv('CAPSULE_REPORTS');
    $words = $_SERVER['argv'] ?? [];
    $asks = '/^(-h|--(help|version|check-version|list-.*|atleast-version.*|(generate|migrate)-configuration))$/';
    if (!$reports || !preg_match('/^(phpunit|pest|paratest)(-[\d.]+)?(\.phar)?$/', basename($words[0] ?? '')) || preg_grep($asks, $words)) {
        return;
    }
    // What asks for names is taken out of the environment: runners that tests start are part of those tests.
    $put = static function (string $name, string $value): void {
        putenv($value === '' ? $name : "$name=$value");
        unset($_SERVER[$name], $_ENV[$name]);
    };
    $asked = ['NODE_OPTIONS' => 'NODE', 'TOX_OVERRIDE' => 'TOX', 'TOX_TESTENV_PASSENV' => 'TOX3', 'SPEC_OPTS' => 'RSPEC', 'PHP_INI_SCAN_DIR' => 'PHP'];
    foreach ($asked as $name => $piece) {
        $put($name, trim(str_replace((string) getenv("CAPSULE_ASK_$piece"), '', (string) getenv($name))));
    }
    foreach (['PATH', 'PYTHONPATH'] as $name) {
        $ours = [dirname(__DIR__) . '/bin', dirname(__DIR__) . '/python'];
        $put($name, implode(PATH_SEPARATOR, array_diff(explode(PATH_SEPARATOR, (string) getenv($name)), $ours)));
    }
    foreach (preg_grep('/^CAPSULE_(ASK|REPORTS|TREE)/', array_keys(getenv())) as $name) {
        $put($name, '');
    }
    // It is empty until PHPUnit has come to its own end.
    $file = sprintf('%s/phpunit-%d-%s.xml', $reports, getmypid(), bin2hex(random_bytes(4)));
    touch($file);
    $at = array_search('--log-junit', $words, true);
    if ($at !== false && isset($words[$at + 1])) {
        register_shutdown_function(static fn () => is_file($words[$at + 1]) && copy($words[$at + 1], $file));
        return;
    }
    array_splice($_SERVER['argv'], 1, 0, ['--log-junit', $file]);
    $GLOBALS['argv'] = $_SERVER['argv'];
    $_SERVER['argc'] = $GLOBALS['argc'] = count($_SERVER['argv']);
})();
