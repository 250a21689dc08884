# Loaded before mix: a formatter of ExUnit that writes how each test ended, one line of JSON each.
defmodule CapsuleFormatter do
  use GenServer

  def init(_) do
    mark = String.pad_leading(Integer.to_string(:rand.uniform(0xFFFFFFFF), 16), 8, "0")
    name = "mix-#{System.pid()}-#{mark}.jsonl"
    {:ok, file} = File.open(Path.join(:persistent_term.get(:capsule_reports), name), [:append, :raw])
    write(file, runner: "mix")
    {:ok, file}
  end

  def handle_cast({:test_finished, test}, file) do
    path = Path.relative_to(test.tags.file, :persistent_term.get(:capsule_tree))
    write(file, test: "#{path}::#{inspect(test.module)} > #{test.name}", result: result(test.state))
    {:noreply, file}
  end

  def handle_cast({:suite_finished, _}, file) do
    write(file, ended: "0")
    {:noreply, file}
  end

  def handle_cast(_, file), do: {:noreply, file}

  defp result(nil), do: "passed"
  defp result({:failed, _}), do: "failed"
  defp result({:invalid, _}), do: "errored"
  defp result(_), do: "skipped"

  defp write(file, row) do
    pairs = Enum.map_join(row, ", ", fn {key, value} -> "#{quoted(to_string(key))}: #{quoted(value)}" end)
    IO.binwrite(file, "{#{pairs}}\n")
  end

  defp quoted(text), do: "\"#{for <<char::utf8 <- text>>, into: "", do: escaped(char)}\""

  defp escaped(char) when char < 32 or char in [?", ?\\],
    do: "\\u" <> String.pad_leading(Integer.to_string(char, 16), 4, "0")

  defp escaped(char), do: <<char::utf8>>
end

:persistent_term.put(:capsule_reports, System.fetch_env!("CAPSULE_MIX_REPORTS"))
:persistent_term.put(:capsule_tree, System.fetch_env!("CAPSULE_MIX_TREE"))
Enum.each(["CAPSULE_MIX_REPORTS", "CAPSULE_MIX_TREE"], &System.delete_env/1)
