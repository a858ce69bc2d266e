#include "manual/completion.h"

#include <fmt/format.h>

#include <vector>

namespace deltad {
namespace {

// One line of the script's table for `app` and each of its subcommands:
//   "PATH") commands="…" options="…" ;;
void add_rows(const CLI::App& app, const std::string& path, std::string* rows,
              std::vector<std::string>* paths) {
  std::string commands, options;
  std::vector<const CLI::App*> below;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (command->get_group().empty()) continue;
    commands += (commands.empty() ? "" : " ") + command->get_name();
    below.push_back(command);
  }
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    for (const std::string& name : option->get_lnames())
      options += (options.empty() ? "--" : " --") + name;
  }
  *rows += fmt::format("    \"{}\") commands=\"{}\" options=\"{}\" ;;\n", path, commands, options);
  if (!path.empty()) paths->push_back(path);
  for (const CLI::App* command : below)
    add_rows(*command, path.empty() ? command->get_name() : path + " " + command->get_name(), rows,
             paths);
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
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
                     app.get_name(), known, rows);
}

}  // namespace deltad
