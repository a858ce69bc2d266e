#include "manual/completion.h"

#include <fmt/core.h>

#include <vector>

namespace deltad {
namespace {

// One line of the script's table for `command` and each of its subcommands:
//   "PATH") commands="…" options="…" ;;
void add_rows(const Command& command, const std::string& path, std::string* rows,
              std::vector<std::string>* paths) {
  std::string commands, options;
  for (const Command* below : command.subcommands())
    commands += (commands.empty() ? "" : " ") + below->name();
  for (const OptionText& option : command.options())
    for (const std::string& name : option.long_names)
      options += (options.empty() ? "--" : " --") + name;
  *rows += fmt::format("    \"{}\") commands=\"{}\" options=\"{}\" ;;\n", path, commands, options);
  if (!path.empty()) paths->push_back(path);
  for (const Command* below : command.subcommands())
    add_rows(*below, path.empty() ? below->name() : path + " " + below->name(), rows, paths);
}

}  // namespace

std::string bash_completion(const Command& app) {
  std::string rows, known;
  std::vector<std::string> paths;
  add_rows(app, "", &rows, &paths);
  for (const std::string& path : paths)
    known += fmt::format("{}\"{}\"", known.empty() ? "" : "|", path);
  return fmt::format(R"(# Completion of {0} for bash; for zsh after bashcompinit.
_{0}() {{
  local word path= commands= options= current="${{COMP_WORDS[COMP_CWORD]}}" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    word="${{path:+$path }}${{COMP_WORDS[i]}}"
    case "$word" in
      {1}) path="$word" ;;
    esac
  done
  case "$path" in
{2}  esac
  [[ "$current" == -* ]] && commands="$options"
  COMPREPLY=($(compgen -W "$commands" -- "$current"))
}}
complete -o default -F _{0} {0}
)",
                     app.name(), known, rows);
}

}  // namespace deltad
