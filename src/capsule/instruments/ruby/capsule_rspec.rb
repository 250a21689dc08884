# Required by every run of rspec (SPEC_OPTS): writes how each example ended, one line of JSON each.
require "json"
require "securerandom"

module CapsuleRows
  FOLDER = ENV["CAPSULE_REPORTS"]
  TREE = File.realpath(ENV["CAPSULE_TREE"] || ".")
  OWNER = Process.pid
  HOME = File.dirname(__dir__)

  # What asks for names is taken out of the environment: runners that examples start are part of them.
  def self.withdraw
    put = ->(name, value) { ENV[name] = value.empty? ? nil : value }
    {"NODE_OPTIONS" => "NODE", "TOX_OVERRIDE" => "TOX", "TOX_TESTENV_PASSENV" => "TOX3", "SPEC_OPTS" => "RSPEC",
     "PHP_INI_SCAN_DIR" => "PHP"}.each do |name, piece|
      ours = ENV["CAPSULE_ASK_#{piece}"]
      put.call(name, ENV[name].sub(ours, "").strip) if ENV[name] && ours
    end
    %w[PATH PYTHONPATH].each do |name|
      rest = ENV[name].to_s.split(File::PATH_SEPARATOR) - ["#{HOME}/bin", "#{HOME}/python"]
      put.call(name, rest.join(File::PATH_SEPARATOR))
    end
    ENV.keys.grep(/\ACAPSULE_(ASK|REPORTS|TREE)/).each { |name| ENV.delete(name) }
  end

  def self.begin
    @file = File.open("#{FOLDER}/rspec-#{OWNER}-#{SecureRandom.hex(4)}.jsonl", "a", 0o600)
    @file.sync = true
    write(runner: "rspec")
  end

  def self.write(row)
    @file.puts(JSON.generate(row)) if Process.pid == OWNER # a fork of an example is no runner
  end

  def self.place(path)
    whole = File.expand_path(path)
    (File.exist?(whole) ? File.realpath(whole) : whole).delete_prefix("#{TREE}/")
  end

  def self.tell(example, result)
    path = example.metadata[:rerun_file_path] || example.metadata[:file_path]
    groups = example.example_group.parent_groups.map(&:description).reverse
    result = "skipped" if RSpec.configuration.dry_run?
    write(test: "#{place(path)}::#{[*groups, example.description].join(" > ")}", result: result)
  end

  # In front of the methods by which every run is told of every example.
  module Reporter
    def example_passed(example)
      CapsuleRows.tell(example, "passed")
      super
    end

    def example_failed(example)
      CapsuleRows.tell(example, "failed")
      super
    end

    def example_pending(example)
      CapsuleRows.tell(example, example.execution_result.example_skipped? ? "skipped" : "xfailed")
      super
    end

    def notify_non_example_exception(exception, context)
      where = context.to_s[/loading (\S+?)\.?\s*\z/, 1]
      text = exception.message.to_s
      CapsuleRows.write(error: where ? CapsuleRows.place(where) : context.to_s, text: text[-4000..] || text)
      super
    end

    def finish(*)
      super
    ensure
      CapsuleRows.write(ended: 0)
    end
  end
end

if CapsuleRows::FOLDER
  CapsuleRows.begin
  CapsuleRows.withdraw
  RSpec::Core::Reporter.prepend(CapsuleRows::Reporter)
end
